const { URL, setting, peer, data, handle, main } = require('./side.cjs')
const { makeWorkerUtils, run, runMigrations, Logger } = peer('graphile-worker')
const logger = new Logger(() => () => {})
const connectionString = URL

main({
  setup: () => runMigrations({ connectionString, logger }),
  client: async () => {
    const utils = await makeWorkerUtils({ connectionString, logger })
    return {
      one: job => utils.addJob('noop', data(job), { priority: job.level }),
      bulk: jobs => utils.addJobs(jobs.map(job => ({ identifier: 'noop', payload: data(job), priority: job.level })))
    }
  },
  worker: () => {
    const local = setting('local', 0)
    const batch = setting('batch', -1)
    return run({
      connectionString,
      logger,
      noHandleSignals: true,
      taskList: { noop: handle },
      preset: {
        worker: {
          concurrentJobs: setting('c', 1),
          maxPoolSize: 10,
          ...(local ? { localQueue: { size: local } } : {}),
          ...(batch >= 0 ? { completeJobBatchDelay: batch, failJobBatchDelay: batch } : {})
        }
      }
    })
  }
})
