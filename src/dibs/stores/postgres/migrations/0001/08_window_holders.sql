-- For each job of an enqueue call, in order, another one that keeps its key busy although it may be finished: the newest that
-- is to be unique for some time yet. Null where there is none. dibs.key_window only says where to look; the job says whether
-- it is so.
create function dibs.window_holders(ids uuid[], queues text[], keys text[], moment timestamptz) returns uuid[]
language plpgsql volatile
as $$
#variable_conflict use_column
begin
    return array(
        select (
            select key_window.job from dibs.key_window
            where key_window.queue = item.queue and key_window.key = item.key and key_window.job <> item.id
                and (
                    exists (
                        select from dibs.finished
                        where finished.id = key_window.job and finished.unique_until > moment
                            and finished.queue = item.queue and finished.key = item.key
                    ) or exists (
                        select from dibs.job
                        where job.id = key_window.job and job.unique_until > moment
                            and job.queue = item.queue and job.key = item.key
                    )
                )
            order by key_window.job desc
            limit 1
        )
        from unnest(ids, queues, keys) with ordinality as item (id, queue, key, place)
        order by item.place
    );
end
$$;
