package program

import (
	"regexp"
	"sync"
)

// plainSed matches the sed scripts that are known completely: commands p, d and q behind line numbers or plain regular
// expressions, and s without brackets or line ends, with the flags g, i, p and a number. Every other script asks. A
// bracket is excluded because it may hold the delimiter, so that the rest of the script begins elsewhere than it
// seems. It is compiled when a command needs it, because it takes 0.2 MiB of every process.
var plainSed = sync.OnceValue(func() *regexp.Regexp {
	const (
		pattern = `/[^\[\]\\/\n]*/I?`
		address = `(\d+(~\d+)?|\$|` + pattern + `)`
		flags   = `[gpiI0-9]*`
	)
	substitute := ""
	for _, delimiter := range []string{"/", "|", ",", "#", ":", "@", "!", "%", "_"} {
		part := `([^\[\]\\\n` + delimiter + `]|\\[^\[\]\n])*`
		between := regexp.QuoteMeta(delimiter)
		substitute += `|s` + between + part + between + part + between + flags
	}
	command := ` *(` + address + ` *(, *([+~]?\d+|` + address + `) *)?)?(! *)?([pdq]` + substitute + `) *`
	return regexp.MustCompile(`^( *|` + command + `(; *|;` + command + `)*)$`)
})
