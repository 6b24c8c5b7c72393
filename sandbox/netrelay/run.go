package netrelay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Run runs a command, whose first word is a path. It returns the command's exit status, or 128+n after signal n. If the
// command cannot be started, it prints the error on stderr and returns 126.
func Run(argv []string, stderr io.Writer) int {
	status, err := run(argv)
	if err != nil {
		fmt.Fprintln(stderr, "sandbox:", err)
		return 126
	}
	return status
}

func run(argv []string) (int, error) {
	if len(argv) == 0 {
		return 0, errors.New("no command")
	}
	unix.CloseOnExec(3)
	seal() // before the command starts
	control, err := net.FileConn(os.NewFile(3, "control"))
	if err != nil {
		return 0, fmt.Errorf("open control socket: %w", err)
	}
	c, ok := control.(*net.UnixConn)
	if !ok {
		return 0, errors.New("open control socket: descriptor 3 is not a Unix socket")
	}
	listener, environment, err := listenForProxy()
	if err != nil {
		return 0, fmt.Errorf("listen for the proxy: %w", err)
	}
	if err := pass(c, listener.(*net.TCPListener)); err != nil {
		return 0, fmt.Errorf("pass listener: %w", err)
	}
	listener.Close() // the passed listener stays open
	// Signals are for the command. They are caught and not ignored, because the command would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2)
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Env: environment,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, fmt.Errorf("start command: %w", err)
	}
	go serve(c)
	state, err := p.Wait()
	if err != nil {
		return 0, fmt.Errorf("wait for command: %w", err)
	}
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return state.ExitCode(), nil
}

// listenForProxy listens at ProxyAddress, and returns the environment with the address. If another command that shares
// the loopback address uses the port, any free port takes its place.
func listenForProxy() (net.Listener, []string, error) {
	environment := os.Environ()
	listener, err := net.Listen("tcp", ProxyAddress)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return listener, environment, err
	}
	if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, nil, err
	}
	for i, variable := range environment {
		if name, value, _ := strings.Cut(variable, "="); strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
			environment[i] = name + "=" + strings.Replace(value, ProxyAddress, listener.Addr().String(), 1)
		}
	}
	return listener, environment, nil
}

// serve answers questions for ports until the worker closes the connection.
func serve(c *net.UnixConn) {
	var port [2]byte
	for {
		if n, err := c.Read(port[:]); err != nil || n != len(port) {
			return
		}
		conn, err := dial(int(port[0])<<8 | int(port[1]))
		if err == nil {
			err = pass(c, conn)
			conn.Close()
		}
		if err == nil {
			continue
		}
		errno := syscall.ECONNREFUSED
		errors.As(err, &errno)
		if _, err := c.Write([]byte{byte(errno)}); err != nil {
			return
		}
	}
}

// dial connects to a port on 127.0.0.1 or ::1, because a program on localhost may listen on one of them only.
func dial(port int) (*net.TCPConn, error) {
	conn, err := net.DialTimeout("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), answerTimeout/2)
	if err != nil {
		var other error
		if conn, other = net.DialTimeout("tcp6", net.JoinHostPort("::1", strconv.Itoa(port)), answerTimeout/4); other != nil {
			return nil, err
		}
	}
	return conn.(*net.TCPConn), nil
}

func pass(c *net.UnixConn, socket interface{ File() (*os.File, error) }) error {
	f, err := socket.File()
	if err != nil {
		return err
	}
	defer f.Close()
	c.SetWriteDeadline(time.Now().Add(answerTimeout))
	_, _, err = c.WriteMsgUnix([]byte{0}, unix.UnixRights(int(f.Fd())), nil)
	return err
}
