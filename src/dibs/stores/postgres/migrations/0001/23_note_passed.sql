-- Writes down that a claim passed a job of this queue which a limit holds back; see dibs.passed.
create function dibs.note_passed(queue text, moment timestamptz) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
begin
    if not exists (
        select from dibs.passed where passed.queue = note_passed.queue and passed.at > moment - interval '0.5 seconds'
    ) then
        insert into dibs.passed (queue, at) values (note_passed.queue, moment)
        on conflict (queue) do update set at = greatest(passed.at, excluded.at);
    end if;
end
$$;
