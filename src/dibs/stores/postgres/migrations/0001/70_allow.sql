-- Grants a role what it needs and no more: 'producer' enqueues, starts flows and looks them up, 'worker' also claims and settles,
-- 'operator' does everything. The functions run with the rights of their owner, so no table is granted to anybody.
create function dibs.allow(role name, purpose text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    producing constant text[] := array[
        'enqueue', 'enqueue_alike', 'enqueue_arrays', 'enqueue_many', 'enqueue_plain', 'start_flow', 'get', 'get_flow', 'new_id', 'wake'
    ];
    working constant text[] := array[
        'claim', 'claim_lock', 'claim_take', 'heartbeat', 'settle', 'settle_one', 'succeed', 'succeed_alike', 'succeed_one', 'sweep',
        'prune', 'make_days', 'due', 'attend', 'offer', 'retract', 'claim_next_step', 'complete_step', 'fail_step', 'extend_step',
        'keep', 'kept'
    ];
    operating constant text[] := array[
        'find', 'find_flows', 'floor_of', 'counts', 'counts_up_to', 'workers', 'count_matching',
        'cancel', 'requeue', 'reschedule', 'reprioritise', 'delete', 'pause', 'resume', 'configure', 'limit', 'limits'
    ];
    granted constant text[] := case purpose
        when 'producer' then producing
        when 'worker' then producing || working
        when 'operator' then producing || working || operating
    end;
    verb regprocedure;
begin
    if granted is null then
        raise 'purpose must be producer, worker or operator, not %', purpose using errcode = 'invalid_parameter_value';
    end if;
    execute format('grant usage on schema dibs to %I', role);
    execute format('grant select on dibs.migration to %I', role);
    for verb in
        select oid from pg_proc where pronamespace = 'dibs'::regnamespace and proname = any (granted)
    loop
        execute format('grant execute on function %s to %I', verb, role);
    end loop;
end
$$;
