const { URL, setting, peer, data, handle, main } = require('./side.cjs')
const module_ = peer('pg-boss')
const PgBoss = module_.PgBoss || module_

async function boss (options) {
  const boss = new PgBoss({ connectionString: URL, ...options })
  boss.on('error', problem => console.error(problem))
  await boss.start()
  return boss
}

main({
  setup: async () => { await (await boss({})).createQueue('noop') },
  client: async () => {
    const sender = await boss({ supervise: false, schedule: false })
    const rows = jobs => jobs.map(job => ({ data: data(job), priority: -job.level }))
    // insert took rows that name their queue, and takes the queue first in later versions.
    const bulk = sender.insert.length > 1
      ? jobs => sender.insert('noop', rows(jobs))
      : jobs => sender.insert(rows(jobs).map(row => ({ name: 'noop', ...row })))
    return { one: job => sender.send('noop', data(job), { priority: -job.level }), bulk }
  },
  worker: async () => {
    const worker = await boss({})
    const options = { batchSize: setting('batch', 1), pollingIntervalSeconds: setting('poll', 2) }
    for (let k = 0; k < setting('workers', 1); k++) {
      await worker.work('noop', options, jobs => Promise.all(jobs.map(job => handle(job.data))))
    }
  }
})
