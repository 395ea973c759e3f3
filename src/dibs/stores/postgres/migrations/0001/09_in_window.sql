-- Of the jobs of an enqueue call, the ids of those whose key is busy because another job, that is still there, is to be
-- unique for some time yet.
create function dibs.in_window(ids uuid[], queues text[], keys text[], moment timestamptz) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
    return array(
        select item.id from unnest(ids, queues, keys) as item (id, queue, key)
        where item.key is not null and dibs.window_holder(item.queue, item.key, moment, item.id) is not null
    );
end
$$;
