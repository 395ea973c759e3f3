-- Makes a queued job, locked by the caller, what was asked for now; see Store.enqueue. It stays the same job.
-- Returns whether it is due.
create function dibs.change_queued(
    holder uuid, task text, args json, priority smallint, run_at timestamptz, max_attempts smallint, meta json,
    expires_at timestamptz, limit_key text, unique_for interval, on_conflict text, max_delay interval,
    moment timestamptz
) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    asked constant timestamptz := coalesce(change_queued.run_at, moment);
    changed dibs.job;
begin
    update dibs.job set
        task = change_queued.task, args = change_queued.args, priority = change_queued.priority,
        max_attempts = change_queued.max_attempts, meta = change_queued.meta, attempts = 0, outcome = null,
        expires_at = change_queued.expires_at, limit_key = change_queued.limit_key,
        unique_until = job.created_at + dibs.exactly(unique_for),
        run_at = case when on_conflict = 'replace' then asked
            else greatest(job.run_at, least(asked, job.created_at + dibs.exactly(max_delay))) end
    where job.id = holder
    returning job.* into changed;
    delete from dibs.key_window
    where key_window.queue = changed.queue and key_window.key = changed.key and key_window.job = holder;
    if changed.unique_until is not null then
        insert into dibs.key_window (queue, key, job, until)
        values (changed.queue, changed.key, holder, changed.unique_until);
    end if;
    return changed.run_at <= moment;
end
$$;
