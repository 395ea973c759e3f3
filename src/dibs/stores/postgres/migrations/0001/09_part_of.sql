-- Which of eight parts of the slots of a limit a key is in: few rows to write for a claim of many keys, and few to read
-- for one of them. The empty key, of limits that are not of keys, has a part, too.
create function dibs.part_of(key text) returns integer
language sql immutable parallel safe
as $$
select hashtext(key) & 7
$$;
