-- One job, and a wake-up with its commit.
-- $1 queue, $2 task, $3 id, $4 args
with sent as (
    insert into public.bare (queue, task, id, args) values ($1, $2, $3::uuid, $4::json)
)
select pg_notify('bare', '')
