-- Where the next chunk begins: behind the last of a full one; null when a chunk was not full.
create function dibs.last_of(chunk uuid[], max_jobs integer) returns uuid
language sql immutable
as $$ select case when cardinality(chunk) = max_jobs then chunk[max_jobs] end $$;
