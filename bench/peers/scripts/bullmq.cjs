const { URL: ADDRESS, setting, peer, data, handle, main } = require('./side.cjs')
const { Queue, Worker } = peer('bullmq')
const { hostname, port } = new URL(ADDRESS)
const connection = { host: hostname, port: Number(port) }

// 0 is not a priority of its own: jobs without one come first.
const options = job => (job.level > -1 ? { priority: 10 + job.level } : {})
const plain = job => (job.level === 0 ? {} : options(job))

main({
  client: async () => {
    const queue = new Queue('q', { connection })
    await queue.waitUntilReady()
    return {
      one: job => queue.add('noop', data(job), plain(job)),
      bulk: jobs => {
        const mixed = jobs.some(job => job.level < 0)
        return queue.addBulk(jobs.map(job => ({ name: 'noop', data: data(job), opts: mixed ? options(job) : plain(job) })))
      }
    }
  },
  worker: async () => {
    const keep = setting('keep', -1)
    const worker = new Worker('q', job => handle(job.data), {
      connection,
      concurrency: setting('c', 1),
      ...(keep >= 0 ? { removeOnComplete: { count: keep } } : {})
    })
    worker.on('error', problem => console.error(problem))
  }
})
