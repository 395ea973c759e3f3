-- Whether the end of an exhausted step would stop its flow.
create function dibs.stops(flow uuid) returns boolean
language plpgsql stable
as $$
begin
    return exists (
        select from dibs.flow where flow.id = stops.flow and flow.state = 'running' and flow.on_failure = 'stop'
    );
end
$$;
