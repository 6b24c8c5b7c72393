package main

// way is one way to have a command run, by the name its benchmarks give it.
type way struct{ metric, name string }

var ours = []way{
	{"plain", "plain sh -c"},
	{"worker-none", "worker, no isolation"},
	{"worker-landlock", "worker, landlock"},
	{"worker-bwrap", "worker, bwrap"},
	{"shell-none", "NATS and shell, no isolation"},
	{"shell-landlock", "NATS and shell, landlock"},
	{"shell-bwrap", "NATS and shell, bwrap"},
}

var rivals = []way{
	{"ssh", "ssh localhost"},
	{"ssh-shared", "ssh localhost, shared connection"},
	{"tmux", "tmux, looked at every 200 ms"},
}

// mostOver is how many milliseconds a short command may take longer than plain, at the median.
var mostOver = map[string]float64{"worker-landlock": 1, "worker-bwrap": 8, "shell-none": 8}

// leastTimes is how many times as long as the worker behind bwrap the rivals must take for a short command. Only the
// worker does what they do; NATS and the shell also check and record it.
var leastTimes = map[string]float64{"ssh": 15, "tmux": 20}

func commandLines() (lines []line) {
	for _, w := range append(ours, rivals...) {
		lines = append(lines,
			line{name: "echo hi, " + w.name + ", p50 ms", metric: w.metric + "-p50-ms"},
			line{name: "echo hi, " + w.name + ", p99 ms", metric: w.metric + "-p99-ms"})
	}
	for _, w := range ours[1:] {
		lines = append(lines, line{name: "echo hi, " + w.name + ", over plain, p50 ms", metric: w.metric + "-over-ms",
			budget: mostOver[w.metric]})
	}
	for _, r := range rivals {
		for _, w := range ours {
			if w.metric == "worker-bwrap" || w.metric == "shell-bwrap" {
				l := line{name: r.name + ", times as long as " + w.name, metric: r.metric + "/" + w.metric, atLeast: true}
				if w.metric == "worker-bwrap" {
					l.budget = leastTimes[r.metric]
				}
				lines = append(lines, l)
			}
		}
	}
	return lines
}

func manyLines() (lines []line) {
	for _, w := range ours {
		lines = append(lines, line{name: "64 at once, " + w.name + ", commands/s", metric: w.metric + "-cmds/s"},
			line{name: "processor time of one of them, all processes, ms", metric: w.metric + "-processor-ms"})
	}
	return lines
}

func gigabyteLines() (lines []line) {
	for _, w := range append(ours, rivals[:2]...) {
		l := line{name: "1 GB of output, " + w.name + ", MB/s", metric: w.metric + "-MB/s", atLeast: true}
		if w.metric != "plain" && w.metric != "ssh" && w.metric != "ssh-shared" {
			l.budget = 200
		}
		lines = append(lines, l,
			line{name: "its processor time, all processes, s", metric: w.metric + "-processor-s"})
	}
	return lines
}
