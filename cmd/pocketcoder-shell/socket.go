package main

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"

	"pocketcoder/bridge/opencode/shellsocket"
)

// socket is a connected socket. Package net would cost more processor time than the rest of this program.
type socket int

// dial connects to the bridge.
func dial(address string) (socket, error) {
	if rest, isTCP := strings.CutPrefix(address, shellsocket.TCP); isTCP {
		return dialTCP(rest)
	}
	return dialUnix(address)
}

// dialTCP connects to a port of 127.0.0.1, given as port/secret, and sends the secret.
func dialTCP(address string) (socket, error) {
	text, secret, _ := strings.Cut(address, "/")
	port, err := strconv.Atoi(text)
	if err != nil {
		return 0, errors.New(shellsocket.Variable + " names no port")
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, errors.New("open a socket: " + err.Error())
	}
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, errors.New("port " + text + ": " + err.Error())
	}
	_, err = socket(fd).Write(shellsocket.Append(nil, shellsocket.Secret, secret))
	return socket(fd), err
}

// dialUnix connects to a Unix socket. It changes to the directory of a Unix socket, because the path of a socket is limited to about
// 100 bytes.
func dialUnix(address string) (socket, error) {
	path, isUnix := strings.CutPrefix(address, shellsocket.Unix)
	if !isUnix || !strings.HasPrefix(path, "/") {
		return 0, errors.New(shellsocket.Variable + " is " + address + ", want unix:PATH with an absolute path, or tcp:PORT/SECRET")
	}
	slash := strings.LastIndexByte(path, '/')
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, errors.New("open a socket: " + err.Error())
	}
	if err := syscall.Chdir(path[:slash+1]); err != nil {
		return 0, errors.New(path + ": " + err.Error())
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path[slash+1:]}); err != nil {
		return 0, errors.New(path + ": " + err.Error())
	}
	return socket(fd), nil
}

// Read implements io.Reader.
func (s socket) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(s), p)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write implements io.Writer.
func (s socket) Write(p []byte) (written int, err error) {
	for written < len(p) {
		n, err := syscall.Write(int(s), p[written:])
		if err != nil && err != syscall.EINTR {
			return written, err
		}
		written += max(n, 0)
	}
	return written, nil
}
