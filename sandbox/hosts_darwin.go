package sandbox

// hosts is the machine's localhost, whoever listens there: whose a socket is cannot be known here.
func (t *tree) hosts(int) []string { return []string{"localhost"} }
