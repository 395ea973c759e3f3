-- How many jobs a limit lets a claim take: one of the queue, of a key of it, or of a task; `key` is empty, the key, or the
-- task. `used`: how many it takes. Unless it is sure, there may be more places.
create type dibs.room as (kind text, key text, places integer, used integer, sure boolean);
