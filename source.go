// Package pocketcoder embeds the source of pocketcoder-shell. If the program has no shell beside it, as with `go run
// ./cmd/pocketcoder up`, it builds the shell from this source, never from a directory.
package pocketcoder

import "embed"

// ShellSource is a module with the package cmd/pocketcoder-shell, which imports only the standard library and this
// module.
//
//go:embed go.mod bridge/opencode/shellsocket/shellsocket.go cmd/pocketcoder-shell/main.go cmd/pocketcoder-shell/socket.go
var ShellSource embed.FS
