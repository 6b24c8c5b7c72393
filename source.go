// Package pocketcoder holds the source of pocketcoder-shell. A pocketcoder without the shell beside it, such as that of
// `go run ./cmd/pocketcoder up`, builds the shell from this source and from no directory.
package pocketcoder

import "embed"

// ShellSource is a module with the package cmd/pocketcoder-shell, which imports only the standard library and this
// module.
//
//go:embed go.mod bridge/opencode/shellsocket/shellsocket.go cmd/pocketcoder-shell/main.go cmd/pocketcoder-shell/socket.go
var ShellSource embed.FS
