package sandbox

// hosts returns the machine's localhost. It cannot check which process has a listening socket.
func (t *tree) hosts(int) []string { return []string{"localhost"} }
