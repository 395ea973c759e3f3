-- A limit that has no room for this job, locked by the caller; null if all have, or the job is over. The limits that it
-- comes under are locked; see dibs.lock_scopes.
create function dibs.lacking(job dibs.job, moment timestamptz, may_wait boolean) returns dibs.room
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
    judged record;
begin
    if not exists (select from dibs.scope) or dibs.is_over(job, moment) then
        return null;
    end if;
    select admitted.* into judged
    from dibs.admit(
        job.queue,
        array[row(job.id, job.priority, job.run_at, job.task, job.limit_key, false)::dibs.candidate],
        1,
        array(select scope.kind from dibs.scope where scope.kind in ('key', 'queue') and scope.name = job.queue),
        array(select scope.name from dibs.scope where scope.kind = 'task' and scope.name = job.task),
        '{}',
        may_wait
    ) as admitted;
    return case when judged.chosen = '{}' then (
        select room from unnest(judged.rooms) as room where room.places = 0 limit 1
    ) end;
end
$$;
