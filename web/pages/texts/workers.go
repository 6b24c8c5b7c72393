package texts

// Texts about workers.
const (
	ChatWorkers  = "Workers"
	WorkersRoot  = "The chat that they work for"
	WorkerGone   = "This worker was deleted. If files or commits of its git worktree were kept, the chat that it worked for lists them."
	WorkerLeft   = "The workers of that chat"
	StopWorker   = "Stop this worker"
	WorkerReport = "A report on the workers of this chat."
	FromChat     = "Written by the assistant of another chat."
)
