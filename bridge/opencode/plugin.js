// Every command of an agent learns whose it is and where to ask; no command learns what OpenCode was started with.
export const PocketCoder = async () => ({
  "shell.env": async (input, output) => {
    for (const name of hidden) output.env[name] = ""
    if (!input.sessionID || !input.callID) return
    Object.assign(output.env, agent, { OPENCODE_SESSION_ID: input.sessionID, OPENCODE_CALL_ID: input.callID })
  },
})
