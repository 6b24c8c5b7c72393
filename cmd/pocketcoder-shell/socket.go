package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"pocketcoder/bridge/opencode/shellsocket"
)

// dial connects to the bridge. Package net would cost more processor time than the rest of this program.
func dial(address string) (*os.File, error) {
	if rest, isTCP := strings.CutPrefix(address, shellsocket.TCP); isTCP {
		return dialTCP(rest)
	}
	return dialUnix(address)
}

// dialTCP connects to a port of 127.0.0.1, given as port/secret, and sends the secret.
func dialTCP(address string) (*os.File, error) {
	text, secret, _ := strings.Cut(address, "/")
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, errors.New(shellsocket.Variable + " names no port")
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, errors.New("open a socket: " + err.Error())
	}
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, errors.New("port " + text + ": " + err.Error())
	}
	bridge, err := open(fd)
	if err != nil {
		return nil, err
	}
	_, err = bridge.Write(shellsocket.Append(nil, shellsocket.Secret, secret))
	return bridge, err
}

// dialUnix connects to a Unix socket. It changes to the directory of a Unix socket, because the path of a socket is
// limited to about 100 bytes.
func dialUnix(address string) (*os.File, error) {
	path, isUnix := strings.CutPrefix(address, shellsocket.Unix)
	if !isUnix || !strings.HasPrefix(path, "/") {
		return nil, errors.New(shellsocket.Variable + " is " + address +
			", want unix:PATH with an absolute path, or tcp:PORT/SECRET")
	}
	slash := strings.LastIndexByte(path, '/')
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, errors.New("open a socket: " + err.Error())
	}
	if err := syscall.Chdir(path[:slash+1]); err != nil {
		return nil, errors.New(path + ": " + err.Error())
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path[slash+1:]}); err != nil {
		return nil, errors.New(path + ": " + err.Error())
	}
	return open(fd)
}

// open returns a connected socket as a file that Go's poller waits for. A read that blocks its thread instead would
// cost more than 1 ms of processor time per command, because Go's scheduler looks after such a thread in ever longer
// steps from 20 µs on.
func open(fd int) (*os.File, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, errors.New("set up a socket: " + err.Error())
	}
	return os.NewFile(uintptr(fd), "PocketCoder"), nil
}
