package texts

// Texts about workers.
const (
	ChatWorkers  = "Workers"
	WorkersRoot  = "The chat that they work for"
	StopWorker   = "Stop this worker"
	WorkerReport = "A report on the workers of this chat."
	FromChat     = "Written by the assistant of another chat."
)
