// OpenCode imports the plugins that a workspace names, or holds in .opencode, even when told to leave its configuration alone
// (measured). It imports this file before them: from here on it can import nothing but this and what is compiled into it.
const ours = [file, import.meta.path]
Bun.plugin({
  name: "pocketcoder",
  setup(build) {
    build.onResolve({ filter: /^(?!\/\$bunfs\/)/ }, ({ path }) => {
      if (!ours.includes(path)) throw new Error(`${path} is no part of OpenCode`)
    })
  },
})

// Every command of an agent learns whose it is and where to ask; no command learns what OpenCode was started with.
export const PocketCoder = async () => ({
  "shell.env": async (input, output) => {
    for (const name of hidden) output.env[name] = ""
    if (!input.sessionID || !input.callID) return
    Object.assign(output.env, agent, { OPENCODE_SESSION_ID: input.sessionID, OPENCODE_CALL_ID: input.callID })
  },
})
