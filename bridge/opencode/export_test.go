package opencode

// What tests with the real OpenCode need; they are outside the package because opencodetest imports it.
var (
	Eventually = eventually
	WriteFile  = write
	ReadFile   = read
	ProcessID  = processID
	WrittenPID = writtenPID
	Nest       = nest
)

func (c *Client) Password() string { return c.password }
