// Command enginetest runs the tests that show how OpenCode behaves with any version of OpenCode, and prints which of
// the behaviours hold. It has the list of the behaviours on which PocketCoder relies, and those tests of them that need
// nothing but OpenCode itself.
//
// The product accepts one version only. This program installs others into the directory of the tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"pocketcoder/bridge/opencode/opencodetest"
)

// page is relative to the root of the module.
const page = "docs/engine.md"

func main() {
	write := flag.Bool("write", false, "write the results into "+page+"; without a version, only the list of behaviours")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: enginetest [-write] [VERSION...], in the root of the module")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Args(), *write); err != nil {
		fmt.Fprintln(os.Stderr, "enginetest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, versions []string, write bool) error {
	switch {
	case len(versions) == 0 && write:
		return writeResults("", nil)
	case len(versions) == 0:
		return errors.New("name at least one version of OpenCode, such as 1.18.33")
	}
	b, err := build(ctx)
	if err != nil {
		return err
	}
	defer b.remove()
	var failures []error
	for _, version := range versions {
		if err := b.show(ctx, version, write); err != nil {
			failures = append(failures, fmt.Errorf("test OpenCode %s: %w", version, err))
		}
	}
	return errors.Join(failures...)
}

// show runs the tests with a version and prints which behaviours it has.
func (b binaries) show(ctx context.Context, version string, write bool) error {
	progress := func(line string) { fmt.Fprintln(os.Stderr, line) }
	if _, err := opencodetest.Find(ctx, version, progress); err != nil {
		return err
	}
	outcomes, err := b.run(ctx, version)
	if err != nil {
		return err
	}
	printTable(version, outcomes)
	if !write {
		return nil
	}
	return writeResults(version, outcomes)
}

func printTable(version string, outcomes map[string]outcome) {
	fmt.Println("OpenCode", version)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	for _, b := range behaviours {
		result := b.outcome(outcomes)
		fmt.Fprintf(out, "%s\t%s\t%s\n", b.id, result, strings.TrimSpace(result.reason))
	}
}
