-- Stores a flow with all of its steps, or nothing; see Store.start and, for `steps`, dibs.add_steps. Returns the flow's
-- id, and whether it is new: a known id stores nothing.
create function dibs.start_flow(
    name text, steps json, on_failure text default 'stop', meta json default '{}', id uuid default null,
    wake boolean default true
) returns table (id uuid, created boolean)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
    select own.id, dibs.begin_flow(own.id, start_flow.name, steps, on_failure, start_flow.meta, start_flow.wake)
    from (select coalesce(start_flow.id, dibs.new_id()) as id) as own
$$;
