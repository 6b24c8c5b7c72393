import { Database } from "bun:sqlite"
import { createHmac, randomBytes } from "node:crypto"
import { lstatSync, readFileSync, readlinkSync, statSync } from "node:fs"
import http from "node:http"
import { dirname, join, resolve } from "node:path"

// Bun loads this file before OpenCode itself (BUN_INSPECT_PRELOAD), and OpenCode imports it again as a plugin. Programs that
// OpenCode starts must not load it.
delete process.env.BUN_INSPECT_PRELOAD

// OpenCode imports the plugins that a workspace names, or holds in .opencode, even when told to leave its configuration alone
// (behaviour preload). It can import nothing but this file and what is compiled into it.
const ours = [file, import.meta.path]
Bun.plugin({
  name: "pocketcoder",
  setup(build) {
    build.onResolve({ filter: /^(?!\/\$bunfs\/)/ }, ({ path }) => {
      if (!ours.includes(path)) throw new Error(`${path} is no part of OpenCode`)
    })
  },
})

// OpenCode parses the Markdown files of .opencode in a workspace, and its parser evaluates a front matter that begins with ---js.
globalThis.eval = () => {
  throw new Error("OpenCode evaluates no JavaScript")
}

// OpenCode has a placeholder in place of each key of a provider. PocketCoder's proxy puts the key into requests to the provider. To do
// so it gets them in plain text, over this machine's private connection to it, and encrypts them itself.
const direct = globalThis.fetch
const hasPlaceholder = (headers) => [...headers.values()].some((value) => value.includes(placeholder))

// The tools of PocketCoder's own MCP server learn which call of which session calls them. The model cannot choose it, because the
// argument caller is set before each call. It is short, because the model sees it in its history. The request to the server has the
// signed caller in its place. OpenCode loads this file twice, so both share the calls.
const ownCalls = (globalThis.pocketcoderCalls ??= new Map())
const signatures = (globalThis.pocketcoderSignatures ??= { made: 0 })
const mostCalls = 10_000 // that were noted and not made, because a person denied them

const note = (tool, sessionID, callID) => {
  const id = randomBytes(4).toString("hex")
  if (ownCalls.size >= mostCalls) ownCalls.delete(ownCalls.keys().next().value)
  ownCalls.set(id, [tool.slice(ownTools.length), sessionID, callID, id])
  return id
}

const signCaller = (init) => {
  const message = JSON.parse(init.body)
  const id = message.params?.arguments?.caller
  const call = ownCalls.get(id)
  if (message.method !== "tools/call" || !call) return init
  ownCalls.delete(id)
  const body = Buffer.from(JSON.stringify([...call, String(++signatures.made)])).toString("base64url")
  const mac = createHmac("sha256", process.env.POCKETCODER_MCP_CALLER_KEY).update(body).digest("base64url")
  message.params.arguments.caller = `${body}.${mac}`
  return { ...init, body: JSON.stringify(message) }
}

globalThis.fetch = Object.assign(
  (input, init) => {
    const request = input instanceof Request ? input : undefined
    const url = new URL(request?.url ?? input)
    if (url.href === ownServer && typeof init?.body === "string") return direct(input, signCaller(init))
    const headers = new Headers(init?.headers ?? request?.headers)
    if (url.protocol !== "https:" || !hasPlaceholder(headers)) return direct(input, init)
    const target = `http://${url.hostname}:${url.port || 443}${url.pathname}${url.search}`
    return direct(request ? new Request(target, request) : target, init)
  },
  { preconnect: direct.preconnect },
)

// OpenCode does not report the usage of its requests for titles. The AI SDK calls each integration in this list when a call of a model
// starts and ends, with the same metadata object. The plugin sends the cost to PocketCoder before OpenCode reports the title. The prices
// are those by which OpenCode counts an answer. The Map is global because OpenCode loads this file twice.
const titleModels = (globalThis.pocketcoderTitleModels ??= new Map()) // by session
const titleCalls = new WeakSet()
const titlePrompt = "You are a title generator."
const titlePromptEnd = "</examples>"
const titleRequest = "Generate a title for this conversation:\n"

const countTitle = async (session, model, usage) => {
  const { inputTokens: all = 0, outputTokens: written = 0, inputTokenDetails: details } = usage
  const { cacheReadTokens: cacheRead = 0, cacheWriteTokens: cacheWrite = 0 } = details ?? {}
  const reasoning = usage.outputTokenDetails?.reasoningTokens ?? 0
  const input = Math.max(0, all - cacheRead - cacheWrite)
  const price = model.cost
  const cost = (input * price.input + written * price.output + cacheRead * price.cache.read + cacheWrite * price.cache.write) / 1e6
  const title = { session, provider: model.providerID, model: model.id, cost, input, output: Math.max(0, written - reasoning), reasoning }
  const { mcp } = JSON.parse(process.env.OPENCODE_CONFIG_CONTENT)
  await fetch(new URL("/titles", ownServer), {
    method: "POST",
    headers: Object.values(mcp)[0].headers,
    body: JSON.stringify({ ...title, cache_read: cacheRead, cache_write: cacheWrite }),
  })
}

if (ownServer)
  globalThis.AI_SDK_TELEMETRY_INTEGRATIONS ??= [
    {
      onStart: ({ metadata, messages }) => {
        if (metadata && messages?.some(({ content }) => content === titleRequest)) titleCalls.add(metadata)
      },
      onFinish: async ({ metadata, totalUsage }) => {
        const model = titleCalls.has(metadata) && titleModels.get(metadata.sessionId)
        if (model) await countTitle(metadata.sessionId, model, totalUsage)
      },
    },
  ]

// OpenCode compares the text before and after an edit in its only thread, with jsdiff, and answers no chat meanwhile. N changed lines
// take up to 2 N² steps of about a microsecond. jsdiff reads the first option once in a comparison and the second one in each step.
// OpenCode sets neither. All comparisons together get about a tenth of the time. Without credit, only small ones run. git.sh keeps the comparisons at the end of a turn below maxSteps.
const maxSteps = 2_500_000
const smallSteps = 20_000
const mostCredit = 2000 // milliseconds
let credit = mostCredit
let counted = performance.now() // the time of the last change of credit
let limit = 0
let steps = 0
Object.defineProperty(Object.prototype, "maxEditLength", {
  get() {
    const now = performance.now()
    credit = Math.min(mostCredit, credit + (now - counted) / 10)
    counted = now
    limit = credit > 0 ? maxSteps : smallSteps
    steps = 0
  },
})
Object.defineProperty(Object.prototype, "oneChangePerToken", {
  get() {
    if (++steps > limit)
      throw new Error(
        limit === maxSteps
          ? "This changes too many lines of the file at once. Change at most 1,000 lines in one call, or use a command such as sed."
          : "OpenCode compared very many lines in the last minute. Wait a minute, or change at most 100 lines in one call.",
      )
    if (steps % 1000 !== 0) return
    const now = performance.now()
    credit -= now - counted
    counted = now
  },
})

// Tool calls begin one after another, each session in turn. Between them, OpenCode's only thread answers other chats: a late timer
// shows for how long a call kept it busy, and the next call waits as long. When calls have done so for 10 s, those sessions that took
// part get no more than a quarter of the time. Their other calls fail at once.
const mostBusy = 10_000
const littleBusy = 500
const waiting = new Map() // by session, the calls that wait to begin
const busy = new Map() // by session, and in all under "", for how many milliseconds
const leftPerSecond = 250
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

const turn = (session) => {
  const calls = waiting.get(session) ?? []
  const begun = new Promise((begin) => calls.push(begin))
  const isFirst = waiting.size === 0
  waiting.set(session, calls)
  if (isFirst) beginAll()
  return begun
}

const beginAll = async () => {
  while (waiting.size > 0)
    for (const [session, calls] of waiting) {
      const at = performance.now()
      const processor = process.cpuUsage()
      calls.shift()()
      await sleep(10)
      const { user, system } = process.cpuUsage(processor) // on a busy machine a timer is late for other reasons
      const late = Math.min(performance.now() - at - 10, (user + system) / 1000)
      if (late > 50) {
        for (const whose of [session, ""]) busy.set(whose, (busy.get(whose) ?? 0) + late)
        await sleep(late)
      }
      if (calls.length === 0) waiting.delete(session)
    }
}

setInterval(() => {
  const left = 1 - leftPerSecond / busy.get("")
  for (const [whose, ms] of busy) left > 0 ? busy.set(whose, ms * left) : busy.delete(whose)
}, 1000).unref()

const refuseBusy = (session) => {
  if (busy.get("") > mostBusy && busy.get(session) > littleBusy)
    throw new Error("The tool calls of this session keep OpenCode from answering others. Wait a minute, and make smaller ones.")
}

// These tools read a file before they request a permission for it, so that the gate comes too late: a FIFO would hold a thread of
// OpenCode for ever. The gate says the same of the other tools.
const opened = (tool, args) => {
  if (tool === "edit" || tool === "write") return [args.filePath]
  if (tool !== "apply_patch") return []
  // Only \n ends a line of a patch. A name may hold the other characters at which "." and "$" of a regular expression end.
  const headers = String(args.patchText).split("\n").map((line) => line.match(/^\s*\*\*\* (?:Add File|Update File|Delete File|Move to):([^]*)$/))
  return headers.filter(Boolean).map((m) => m[1].trim())
}

const irregular = (path) => {
  const is = statSync(path, { throwIfNoEntry: false })
  if (!is || is.isFile() || is.isDirectory()) return ""
  return is.isFIFO() ? "a FIFO" : is.isSocket() ? "a socket" : "a device"
}

// The isolation makes these names read-only in the workspace. This check only says so in a sentence, before a person is asked.
const refuseReadOnly = (path, directory) => {
  const normal = resolve(directory, path)
  if (!normal.startsWith(readOnly.workspace + "/")) return
  const name = normal.slice(readOnly.workspace.length + 1)
  if (readOnly.names.includes(name.split("/")[0].toLowerCase()))
    throw new Error(`${name} is read-only for OpenCode, because programs outside the sandbox obey it. Ask the person to change it.`)
}

// OpenCode follows no symbolic link of the workspace, because a link could lead to its own files or, once it was approved,
// elsewhere. The isolation makes sure of it where it can. This check says so in a sentence, before a person is asked.
const linkTo = (path) => lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() && readlinkSync(path)

const refuseLinks = (path) => {
  const up = []
  for (let at = path; at.startsWith(readOnly.workspace + "/"); at = dirname(at)) up.unshift(at)
  for (const at of up) {
    const to = linkTo(at)
    if (to) throw new Error(`“${at}” is a symbolic link to “${to}”. OpenCode follows no symbolic links. Use the path that the link leads to.`)
  }
}

// OpenCode reads these files of each folder above a file that it reads, for the model.
const instructions = ["AGENTS.md", "CLAUDE.md", "CONTEXT.md"]

const refuseInstructions = (path) => {
  for (let at = dirname(path); at.startsWith(readOnly.workspace + "/"); at = dirname(at))
    for (const name of instructions) {
      const file = join(at, name)
      if (linkTo(file)) {
        if (!followsLinks) continue // the kernel refuses it
        throw new Error(`“${file}” is a symbolic link. OpenCode would read instructions where it leads. Ask the person to remove it.`)
      }
      const what = irregular(file)
      if (what) throw new Error(`“${file}” is ${what}. OpenCode would read instructions from it. Ask the person to remove it.`)
      if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > maxInstructions)
        throw new Error(`“${file}” has more than ${maxInstructions / 1024} KiB. OpenCode would read all of it as instructions. Ask the person to shorten it.`)
    }
}

// OpenCode reads the whole of a file that it shows or edits, and answers no other chat meanwhile. It keeps an image or a PDF that it
// shows several times as text. Before an edit it makes a string of each line, which takes seconds for millions of lines.
const maxRead = 32
const maxEdited = 2

const refuseBytes = (what, bytes, mebibytes, use) => {
  if (bytes > mebibytes * 1024 * 1024)
    throw new Error(`${what} has more than ${mebibytes} MiB, which is too much for OpenCode. Use commands such as ${use}.`)
}

const refuseLarge = (path, mebibytes, use) => {
  const is = statSync(path, { throwIfNoEntry: false })
  if (is?.isFile()) refuseBytes(`“${path}”`, is.size, mebibytes, use)
}

// If a file does not hold oldString exactly once, OpenCode looks for similar text. That takes time with the square of the file's lines,
// and with the product of both lengths.
const maxSearchedLines = 5000
const maxSearchedProduct = 50_000_000

const refuseSearch = (path, { oldString, newString, replaceAll }) => {
  if (!oldString || !statSync(path, { throwIfNoEntry: false })?.isFile()) return
  const text = readFileSync(path, "utf8")
  const wanted = text.includes("\r\n") ? oldString.replace(/\r?\n/g, "\r\n") : oldString.replaceAll("\r\n", "\n")
  const first = text.indexOf(wanted)
  const grows = (newString ?? "").length - oldString.length
  if (replaceAll && grows > 0) refuseBytes(`“${path}” with these changes`, text.length + (text.split(wanted).length - 1) * grows, maxEdited, "sed")
  if (first !== -1 && (replaceAll || first === text.lastIndexOf(wanted))) return
  if (text.split("\n").length <= maxSearchedLines && text.length * wanted.length <= maxSearchedProduct) return
  throw new Error(`oldString is in the file ${first === -1 ? "nowhere" : "more than once"}. In a file of this size it must match exactly once.`)
}

// In the prompt of a subagent, OpenCode replaces @NAME by the content of that file without a permission request, also
// @/proc/self/environ. It ignores an @ that follows a backquote (1.18.33, ConfigMarkdown.FILE_REGEX). Checking that no such file
// exists would not be enough, because the file can appear later.
const quoteReferences = (prompt) => prompt.replace(/(?<![\w`])@/g, "`@")

// This reads OpenCode's database, because the proxy keeps the plugin's client from OpenCode's API.
const inDatabase = (read) => {
  const database = new Database(join(process.env.XDG_DATA_HOME, "opencode", "opencode.db"), { readonly: true })
  try {
    return read(database)
  } finally {
    database.close()
  }
}

// OpenCode continues any session that task_id names, also one of another chat.
const refuseForeign = (id, sessionID) => {
  const isOurs = "SELECT 1 FROM session WHERE id = ? AND parent_id = ?"
  if (inDatabase((database) => database.query(isOurs).get(String(id), sessionID))) return
  throw new Error(`task_id: “${id}” is no subagent of this session. Leave task_id out to start a new subagent.`)
}

// OpenCode parses a command before it requests a permission for it, and answers no other chat meanwhile. For some commands, such as
// ! ! ! ls, that takes time with the square of their length. Nesting is counted without a look at quotes.
const maxCommand = 32 * 1024
const maxNesting = 200

const refuseUnreadable = (command) => {
  if (Buffer.byteLength(command) > maxCommand) throw new Error("The command has more than 32 KiB. Write a script to a file and run it.")
  let depth = 0
  for (const c of command) {
    if ("({[".includes(c)) depth++
    if (")}]".includes(c)) depth = Math.max(0, depth - 1)
    if (depth > maxNesting) throw new Error(`The command nests more than ${maxNesting} brackets.`)
  }
}

// OpenCode answers POST /sync/history with all missed events at once, and with every event of each session that the request does not
// name. A request can name about 900 sessions. PocketCoder asks at this path instead, for the same events. A GET returns the last
// sequence number of every session. A POST holds pairs of a session and a sequence number, and returns one page of what follows.
const historyPath = "/pocketcoder/history"
const pageEvents = 500
const pageBytes = 4 * 1024 * 1024
const authorization = `Basic ${btoa(`opencode:${process.env.OPENCODE_SERVER_PASSWORD}`)}`

const lastNumbers = (database) =>
  JSON.stringify(Object.fromEntries(database.query("SELECT aggregate_id, seq FROM event_sequence").values()))

const historyPage = (database, pairs) => {
  const following = database.query("SELECT id, aggregate_id, seq, type, data FROM event WHERE aggregate_id = ? AND seq > ? ORDER BY seq")
  const page = []
  let bytes = 0
  for (const [session, last] of pairs)
    for (const { data, ...event } of following.iterate(session, last)) {
      page.push(`${JSON.stringify(event).slice(0, -1)},"data":${data}}`)
      bytes += data.length
      if (page.length === pageEvents || bytes > pageBytes) return `[${page}]`
    }
  return `[${page}]`
}

const answerHistory = async (request, response) => {
  if (request.headers.authorization !== authorization) return response.writeHead(401).end()
  try {
    let body = ""
    for await (const chunk of request) body += chunk
    const answer = inDatabase((database) => (request.method === "GET" ? lastNumbers(database) : historyPage(database, JSON.parse(body))))
    response.writeHead(200, { "content-type": "application/json" }).end(answer)
  } catch (error) {
    response.writeHead(500).end(JSON.stringify({ name: "PocketCoder", data: { message: String(error) } }))
  }
}

const { emit } = http.Server.prototype
http.Server.prototype.emit = function (event, request, response) {
  if (event !== "request" || request.url !== historyPath) return emit.apply(this, arguments)
  answerHistory(request, response)
  return true
}

// The context at the end of a turn's system prompt has the numbers of the chosen agent. A quote in its other values is escaped.
const numberOf = (name, system) => {
  const found = system?.match(new RegExp(`<context [^<>]* ${name}="([^"]+)"[^<>]*/>$`))
  return found && Number(found[1])
}

// Every command of an agent learns whose it is and where to ask; no command learns what OpenCode was started with.
export const PocketCoder = async ({ directory }) => ({
  "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
    await turn(sessionID)
    refuseBusy(sessionID)
    if (tool.startsWith(ownTools)) args.caller = note(tool, sessionID, callID)
    if (tool === "task" && typeof args?.prompt === "string") args.prompt = quoteReferences(args.prompt)
    if (tool === "task" && args?.task_id) refuseForeign(args.task_id, sessionID)
    if (tool === "bash" && typeof args?.command === "string") refuseUnreadable(args.command)
    for (const name of [args?.filePath, args?.path, ...opened(tool, args ?? {})])
      if (typeof name === "string") refuseLinks(resolve(directory, name))
    if (tool === "read" && typeof args?.filePath === "string") {
      refuseInstructions(resolve(directory, args.filePath))
      refuseLarge(resolve(directory, args.filePath), maxRead, "head, tail or grep")
    }
    for (const text of [args?.content, args?.newString, args?.patchText])
      if (typeof text === "string") refuseBytes("The text", Buffer.byteLength(text), maxEdited, "sed")
    for (const name of opened(tool, args ?? {})) {
      if (typeof name !== "string") continue
      refuseReadOnly(name, directory)
      const path = resolve(directory, name)
      const what = irregular(path)
      if (what) throw new Error(`“${path}” is ${what}. OpenCode opens only regular files and directories.`)
      refuseLarge(path, maxEdited, "sed")
      if (tool === "edit") refuseSearch(path, args)
    }
  },
  // OpenCode adds the prompt of the chosen agent to the one that requests a title. It says nothing about titles.
  "experimental.chat.system.transform": async (_, { system }) => {
    if (system[0]?.startsWith(titlePrompt)) system[0] = system[0].slice(0, system[0].indexOf(titlePromptEnd) + titlePromptEnd.length)
  },
  "chat.params": async ({ agent, sessionID, model, message }, output) => {
    if (agent === "title") return titleModels.set(sessionID, model)
    output.temperature = numberOf("temperature", message.system) ?? output.temperature
    output.topP = numberOf("top_p", message.system) ?? output.topP
  },
  "shell.env": async (input, output) => {
    for (const name of hidden) output.env[name] = ""
    if (!input.sessionID || !input.callID) return
    Object.assign(output.env, agent, { OPENCODE_SESSION_ID: input.sessionID, OPENCODE_CALL_ID: input.callID })
  },
})
