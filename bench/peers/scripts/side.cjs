// What the scripts for Node share: the commands of __main__.py, the records of side.py.
const fs = require('fs')
const { createRequire } = require('module')
const path = require('path')

const env = process.env
const settings = Object.fromEntries((env.BENCH_SETTINGS || '').split(',').filter(Boolean).map(pair => pair.split('=')))
const work = Number(env.BENCH_WORK || 0) * 1000
const file = fs.openSync(env.BENCH_RECORDS || '/dev/null', 'a')
const buffer = Buffer.alloc(24)
const now = () => (performance.timeOrigin + performance.now()) / 1000
const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds))

exports.URL = env.BENCH_URL || ''
exports.setting = (name, otherwise) => (name in settings ? Number(settings[name]) : otherwise)
// Installed outside of this tree.
exports.peer = createRequire(path.join(env.BENCH_NODE || '.', 'package.json'))

function record (i, t) {
  buffer.writeBigUInt64LE(BigInt(i), 0)
  buffer.writeDoubleLE(now(), 8)
  buffer.writeDoubleLE(t || 0, 16)
  fs.writeSync(file, buffer)
}
exports.record = record

exports.handle = work
  ? async ({ i, t }) => { record(i, t); await pause(work) }
  : async ({ i, t }) => { record(i, t) }

const data = job => (job.t ? { i: job.i, t: job.t } : { i: job.i })
exports.data = data

function jobsOf (order) {
  const first = order.first || 0
  const level = i => (order.level === 'mixed' ? i % 3 - 1 : order.level || 0)
  return Array.from({ length: order.jobs }, (_, k) => ({ i: first + k, t: 0, level: level(first + k) }))
}

const ways = {
  async one (client, jobs) {
    for (const job of jobs) await client.one(job)
  },
  async bulk (client, jobs) {
    for (let at = 0; at < jobs.length; at += 1000) await client.bulk(jobs.slice(at, at + 1000))
  },
  async crowd (client, jobs, order) {
    const share = number => jobs.filter((_, k) => k % order.clients === number)
    await Promise.all(Array.from({ length: order.clients }, (_, number) => ways.one(client, share(number))))
  },
  async paced (client, jobs, order) {
    const began = performance.now()
    for (const [number, job] of jobs.entries()) {
      const due = (number + Math.random()) * 1000 / order.rate
      await pause(Math.max(0, began + due - performance.now()))
      await client.one({ ...job, t: now() })
    }
  },
  async flood (client, jobs, order) {
    const began = performance.now()
    let sent = 0
    let behind = 0
    while (sent < jobs.length) {
      const elapsed = performance.now() - began
      const due = Math.min(jobs.length, Math.floor(elapsed / 1000 * order.rate) + 1)
      if (due > sent) {
        behind = Math.max(behind, (due - sent) / order.rate)
        const t = now()
        await client.bulk(jobs.slice(sent, due).map(job => ({ ...job, t })))
        sent = due
      }
      await pause(Math.max(0, 10 - (performance.now() - began - elapsed)))
    }
    return { behind }
  }
}

exports.main = async system => {
  const [command, text] = process.argv.slice(2)
  if (command === 'worker') return system.worker()
  if (command === 'setup') {
    if (system.setup) await system.setup()
    process.exit(0)
  }
  const order = JSON.parse(text)
  const client = await system.client()
  const jobs = jobsOf(order)
  const began = performance.now()
  const found = await ways[order.how](client, jobs, order)
  const seconds = (performance.now() - began) / 1000
  console.log(JSON.stringify({ seconds, ...found }))
  process.exit(0)
}
