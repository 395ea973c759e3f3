-- The job that keeps a key busy although it is finished: the newest that is to be unique for some time yet and is still
-- there. Null if there is none.
create function dibs.window_holder(queue text, key text, moment timestamptz, besides uuid default null) returns uuid
language plpgsql volatile
as $$
#variable_conflict use_column
begin
    return (
        select key_window.job from dibs.key_window
        where key_window.queue = window_holder.queue and key_window.key = window_holder.key
            and key_window.until > moment and key_window.job is distinct from besides
            and (
                exists (select from dibs.finished where finished.id = key_window.job)
                or exists (select from dibs.job where job.id = key_window.job)
            )
        order by key_window.job desc
        limit 1
    );
end
$$;
