-- Every job in one shape, for reading.
create view dibs.jobs as
select
    id, queue, task, args,
    case when unmet > 0 then 'waiting' when locked_until is not null then 'running' else 'queued' end as state,
    priority, run_at, created_at, attempts, max_attempts, epoch, worker, locked_until, cancel_asked, started_at,
    null::timestamptz as finished_at, null::json as result, errors, key, unique_until, expires_at, limit_key,
    flow, step, meta, report,
    needs, case when unmet > 0 then dibs.inputs_of(id, needs, need_ids, inputs) else inputs end as inputs
from dibs.job
union all
select
    id, queue, task, args, state,
    priority, run_at, created_at, attempts, max_attempts, epoch, worker, null, cancel_asked, started_at,
    finished_at, result, errors, key, unique_until, expires_at, limit_key,
    flow, step, meta, report, needs, inputs
from dibs.finished;
