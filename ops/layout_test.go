package ops

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"
)

const module = "pocketcoder"

// mayImport gives each package those of ours that its files other than tests may import, relative to the module. A new
// arrow is a decision about the design: add it here with the package that needs it.
var mayImport = map[string]string{
	".":                                  "",
	"events":                             "",
	"atomicfile":                         "",
	"realdir":                            "",
	"money":                              "",
	"expect":                             "",
	"expect/random":                      "",
	"sleep":                              "",
	"events/archive":                     "",
	"events/eventstest":                  "events/log events/secret expect",
	"events/log":                         "events events/log/blob events/log/direct events/secret",
	"events/log/blob":                    "events events/log/direct events/log/place",
	"events/log/direct":                  "events",
	"events/log/file":                    "",
	"events/log/place":                   "events/log/file events/log/s3",
	"events/log/quorum":                  "events/log",
	"events/log/s3":                      "events/log/file",
	"events/log/tail":                    "events events/log",
	"events/offload":                     "events events/log events/log/blob",
	"events/opencode":                    "events",
	"events/recovery":                    "events/log events/log/blob",
	"events/secret":                      "events",
	"projections":                        "projections/endings projections/outgoing events events/log events/opencode projections/artifacts projections/delegations projections/effects projections/executions projections/mcpcalls projections/questions projections/schedules projections/store projections/turnstate projections/usage projections/users sandbox/wire",
	"projections/artifacts":              "events projections/store",
	"projections/effects":                "events events/opencode projections/store",
	"projections/endings":                "projections/turnstate",
	"projections/executions":             "events projections/store",
	"projections/delegations":            "events events/opencode projections/store projections/turnstate",
	"projections/outgoing":               "events events/opencode projections/endings projections/store projections/turnstate",
	"projections/mcpcalls":               "events projections/store",
	"projections/workers":                "projections projections/endings projections/store projections/turnstate",
	"projections/moments":                "events events/log projections projections/store",
	"projections/pending":                "projections projections/effects projections/questions projections/store",
	"projections/projectionstest":        "events/log projections",
	"projections/queries":                "projections/outgoing events events/log projections projections/executions projections/questions projections/schedules projections/spending projections/store projections/workers",
	"projections/questions":              "events events/opencode projections/store",
	"projections/schedules":              "events projections/endings projections/store projections/turnstate",
	"projections/spending":               "projections projections/store projections/usage",
	"projections/store":                  "events events/log",
	"projections/textsearch":             "projections/store",
	"projections/timeline":               "events events/opencode projections projections/effects projections/endings projections/executions projections/questions projections/store projections/turnstate",
	"projections/toolcalls":              "events projections projections/store",
	"projections/turncontext":            "projections projections/store",
	"projections/turns":                  "projections projections/endings projections/store projections/turnstate",
	"projections/users":                  "events projections/store",
	"projections/turnstate":              "events/opencode",
	"projections/usage":                  "projections/store",
	"handlers":                           "events events/log",
	"handlers/account":                   "events events/log events/secret handlers",
	"handlers/budget":                    "events handlers handlers/permission handlers/record money",
	"handlers/chat":                      "events events/log events/opencode handlers",
	"handlers/worker":                    "events events/log handlers handlers/chat handlers/permission/workspace handlers/record",
	"handlers/channel":                   "events events/log events/secret handlers handlers/account handlers/chat handlers/permission handlers/record handlers/slash",
	"handlers/exec":                      "events events/log handlers handlers/network handlers/permission handlers/permission/workspace handlers/policy/bash sandbox/protected sandbox/wire",
	"handlers/handlerstest":              "events events/log handlers",
	"handlers/network":                   "events events/log events/log/tail events/secret handlers handlers/permission handlers/policy handlers/policy/hostport handlers/record handlers/record/rulebook",
	"handlers/permission":                "events events/log events/opencode events/secret handlers handlers/permission/dryrun handlers/permission/workspace handlers/policy handlers/policy/hostport handlers/record handlers/record/rulebook sandbox/wire",
	"handlers/permission/dryrun":         "events handlers handlers/permission/workspace handlers/policy",
	"handlers/permission/explanation":    "events events/log events/opencode handlers handlers/permission handlers/policy sandbox/wire",
	"handlers/permission/permissiontest": "events events/eventstest events/log handlers handlers/chat handlers/handlerstest handlers/permission handlers/permission/dryrun handlers/policy handlers/record handlers/record/rulebook projections projections/projectionstest projections/queries",
	"handlers/permission/workspace":      "events handlers/policy handlers/policy/files handlers/policy/program",
	"handlers/mcpstate":                  "events handlers handlers/network handlers/record projections projections/mcpcalls",
	"handlers/proposal":                  "events handlers handlers/agentfile handlers/record handlers/record/proposals handlers/record/rulebook",
	"handlers/agentfile":                 "events handlers handlers/policy handlers/record handlers/record/rulebook",
	"handlers/schedule":                  "events events/log handlers handlers/account handlers/chat handlers/record handlers/record/schedules handlers/schedule/due",
	"handlers/schedule/due":              "handlers",
	"handlers/schedule/preview":          "events handlers handlers/permission handlers/policy handlers/record/schedules handlers/schedule/due",
	"handlers/record":                    "events events/log handlers handlers/account handlers/policy handlers/record/mcpserver handlers/record/note handlers/record/proposals handlers/record/rulebook handlers/record/schedules handlers/record/sshkey",
	"handlers/recordsecret":              "events events/secret handlers handlers/account handlers/record",
	"handlers/record/mcpserver":          "events handlers handlers/policy handlers/policy/hostport sandbox/limit sandbox/wire",
	"handlers/record/proposals":          "handlers",
	"handlers/record/note":               "handlers",
	"handlers/record/sshkey":             "",
	"handlers/notes":                     "events events/log handlers handlers/account handlers/record handlers/record/note",
	"handlers/record/schedules":          "events handlers handlers/record/rulebook handlers/schedule/due",
	"handlers/record/rulebook":           "events handlers/policy",
	"handlers/slash":                     "",
	"handlers/policy":                    "events handlers/policy/bash handlers/policy/display handlers/policy/files handlers/policy/hostport handlers/policy/program",
	"handlers/policy/bash":               "handlers/policy/display handlers/policy/files handlers/policy/program",
	"handlers/policy/display":            "",
	"handlers/policy/files":              "handlers/policy/display handlers/policy/program sandbox/protected",
	"handlers/policy/hostport":           "handlers/policy/display",
	"handlers/policy/program":            "handlers/policy/display",
	"sandbox":                            "events sandbox/files sandbox/gitconfig sandbox/inside sandbox/isolation sandbox/limit sandbox/proc sandbox/quarantine sandbox/wire",
	"sandbox/quarantine":                 "realdir sandbox/isolation/protection sandbox/wire",
	"sandbox/inside":                     "",
	"sandbox/isolation":                  "sandbox/isolation/protection sandbox/isolation/seccomp sandbox/isolation/systemsecrets",
	"sandbox/isolation/protection":       "sandbox/protected",
	"sandbox/isolation/seccomp":          "",
	"sandbox/isolation/systemsecrets":    "",
	"sandbox/gitconfig":                  "",
	"sandbox/files":                      "sandbox/wire",
	"sandbox/limit":                      "sandbox/proc sandbox/wire",
	"sandbox/proc":                       "",
	"sandbox/protected":                  "",
	"sandbox/wire":                       "",
	"bridge/opencode": "atomicfile bridge/opencode/client bridge/opencode/install bridge/opencode/provider bridge/opencode/shellsocket bridge/opencode/tail " +
		"events handlers/permission/workspace handlers/record sandbox/inside sandbox/isolation sandbox/protected",
	"bridge/opencode/bridgetest": "bridge/opencode/client bridge/opencode/ingest bridge/opencode/outbox events events/eventstest events/log events/secret expect handlers " +
		"handlers/budget handlers/chat handlers/permission handlers/record projections projections/projectionstest",
	"bridge/opencode/client":       "",
	"bridge/opencode/ingest":       "bridge/opencode/client events events/log handlers/permission projections projections/executions projections/pending projections/questions projections/store projections/turns projections/turnstate",
	"bridge/opencode/install":      "bridge/opencode/tail",
	"bridge/opencode/tail":         "",
	"bridge/opencode/demo":         "",
	"bridge/opencode/providerlist": "bridge/opencode/client bridge/opencode/outbox events handlers handlers/record projections projections/store",
	"bridge/opencode/opencodetest": "bridge/opencode/install expect",
	"bridge/opencode/notes":        "atomicfile events events/log handlers handlers/record handlers/record/note realdir",
	"bridge/opencode/outbox":       "bridge/opencode/client bridge/opencode/ingest bridge/opencode/notes bridge/opencode/snapshots events events/log handlers handlers/budget handlers/chat handlers/permission handlers/permission/workspace handlers/record projections projections/effects projections/pending projections/questions projections/spending projections/store projections/turncontext projections/turns projections/turnstate events/opencode",
	"bridge/opencode/provider":     "bridge/opencode/client handlers/network handlers/record handlers/recordsecret",
	"bridge/opencode/procedures":   "bridge/opencode events events/log handlers handlers/proposal handlers/record handlers/record/proposals",
	"bridge/opencode/restarts":     "bridge/opencode projections projections/turns",
	"bridge/opencode/providerkeys": "bridge/opencode bridge/opencode/provider events handlers handlers/network handlers/record handlers/recordsecret",
	"bridge/opencode/recording":    "",
	"bridge/opencode/shells":       "bridge/opencode/shellsocket sandbox/wire",
	"bridge/opencode/shellsocket":  "",
	"bridge/opencode/snapshots":    "atomicfile realdir",
	"bridge/mcp":                   "bridge/mcp/gateway events handlers handlers/account handlers/chat handlers/permission/workspace handlers/policy handlers/proposal handlers/record handlers/record/mcpserver handlers/record/proposals handlers/record/schedules handlers/schedule handlers/schedule/preview handlers/worker projections projections/pending projections/questions projections/schedules projections/toolcalls projections/workers",
	"bridge/mcp/gateway":           "events events/log handlers handlers/network handlers/record handlers/recordsecret handlers/record/mcpserver sandbox/wire",
	"bridge/egress":                "handlers handlers/network handlers/policy/hostport",
	"bridge/schedules":             "events events/log handlers handlers/chat handlers/schedule projections projections/schedules",
	"bridge/channel":               "bridge/push events events/log events/log/blob handlers/channel projections projections/artifacts projections/outgoing projections/questions projections/store projections/toolcalls projections/turnstate",
	"bridge/channel/telegram":      "bridge/channel bridge/egress events handlers/channel",
	"bridge/channel/channeltest":   "bridge/channel events events/eventstest events/log events/secret expect handlers handlers/account handlers/channel handlers/chat handlers/permission handlers/record projections projections/outgoing",
	"bridge/channel/telegramtest":  "",
	"bridge/channel/email":         "bridge/channel bridge/egress events handlers/channel",
	"bridge/channel/emailtest":     "",
	"bridge/webhook":               "bridge/egress events events/log handlers/channel projections",
	"bridge/workers":               "events events/log handlers handlers/chat handlers/worker projections projections/turnstate projections/workers",
	"bridge/push":                  "bridge/egress bridge/push/service events events/log events/opencode events/secret handlers handlers/account handlers/permission handlers/permission/workspace handlers/policy/display handlers/record projections projections/questions projections/store projections/toolcalls projections/turns projections/turnstate",
	"bridge/push/service":          "atomicfile bridge/egress events",
	"bridge/ssh":                   "atomicfile events handlers handlers/account handlers/record handlers/record/sshkey projections projections/store",
	"web":                          "web/channels handlers/channel events/log events/log/tail events/secret handlers handlers/account handlers/chat handlers/exec handlers/permission handlers/record handlers/recordsecret projections web/api web/chats web/export web/openapi web/pages web/pages/site web/ports web/realtime web/records web/search web/shell web/static web/stream handlers/agentfile handlers/notes handlers/proposal web/agents handlers/worker web/workers handlers/schedule handlers/schedule/preview web/schedules",
	"web/agents":                   "handlers handlers/agentfile handlers/mcpstate handlers/notes handlers/proposal handlers/record web/api",
	"web/api":                      "events events/log events/log/tail handlers handlers/account projections web/openapi web/query web/query/filter web/query/schema",
	"web/channels":                 "handlers/channel web/api",
	"web/chats":                    "events handlers handlers/chat handlers/exec handlers/permission handlers/permission/dryrun handlers/permission/explanation handlers/record projections projections/store projections/timeline projections/turns web/api web/openapi web/query",
	"web/export":                   "events events/log projections projections/executions projections/moments projections/timeline web/api web/openapi web/pages/conversation web/pages/requests web/pages/site web/pages/texts web/pages/visible web/static web/stream",
	"web/schedules":                "handlers handlers/account handlers/record/schedules handlers/schedule handlers/schedule/preview web/api",
	"web/workers":                  "handlers handlers/account handlers/worker projections/workers web/api web/openapi",
	"web/metrics":                  "events/log events/log/blob projections projections/store web/api",
	"web/pages":                    "web/export web/pages/changes web/pages/conversation web/pages/login web/pages/messengers web/pages/offline web/pages/operations web/pages/replay web/pages/requests web/pages/schedules web/pages/search web/pages/settings web/pages/site web/pages/terminal",
	"web/pages/operations":         "handlers/account money projections/spending projections/store sandbox/wire web/api web/metrics web/pages/site web/pages/texts web/pages/visible",
	"web/pages/schedules":          "handlers/record/schedules handlers/schedule/preview money projections/schedules projections/timeline web/api web/pages/site web/pages/texts web/pages/visible web/query",
	"web/pages/messengers":         "events handlers/channel web/api web/pages/site web/pages/texts web/pages/visible web/query",
	"web/pages/settings":           "events web/api web/pages/site web/pages/texts web/pages/visible web/query web/query/schema web/records handlers handlers/agentfile handlers/channel handlers/mcpstate handlers/network handlers/notes handlers/policy handlers/proposal handlers/record/mcpserver handlers/record/note handlers/record/proposals handlers/record/rulebook projections/mcpcalls web/agents handlers/record handlers/recordsecret",
	"web/pages/changes":            "events projections projections/timeline web/api web/pages/conversation web/pages/site web/pages/texts web/pages/visible",
	"web/pages/conversation":       "events events/log handlers/chat handlers/policy handlers/record/mcpserver handlers/slash projections projections/executions projections/store projections/timeline web/api web/chats web/pages/requests web/pages/site web/pages/texts web/pages/visible web/query projections/workers projections/turns money",
	"web/pages/login":              "events handlers handlers/account web/api web/pages/site web/pages/texts web/pages/visible web/query",
	"web/pages/offline":            "web/api web/pages/site web/pages/texts web/static",
	"web/pages/replay":             "events events/log events/opencode projections projections/moments projections/timeline web/api web/export web/pages/conversation web/pages/requests web/pages/site web/pages/texts web/pages/visible",
	"web/pages/requests":           "events handlers/permission handlers/permission/dryrun handlers/record handlers/record/mcpserver projections projections/questions projections/timeline web/api web/chats web/pages/site web/pages/texts web/pages/visible web/query",
	"web/pages/search":             "projections/textsearch web/api web/pages/site web/pages/texts web/pages/visible web/search",
	"web/pages/site":               "web/agents events events/log handlers/account projections/executions projections/timeline projections/turnstate web/api web/channels web/chats web/pages/texts web/pages/visible web/ports web/query web/records web/schedules web/shell web/stream web/workers",
	"web/pages/terminal":           "events events/log projections/executions projections/timeline web/api web/pages/conversation web/pages/site web/pages/texts web/pages/visible",
	"web/pages/texts":              "",
	"web/pages/visible":            "handlers/policy/display web/pages/texts",
	"web/openapi":                  "handlers/account web/query/schema",
	"web/ports":                    "events handlers handlers/account handlers/exec projections web/api web/ports/ticket",
	"web/ports/ticket":             "",
	"web/query":                    "events web/query/filter web/query/schema",
	"web/query/filter":             "events web/query/schema",
	"web/query/schema":             "events",
	"web/realtime":                 "events events/log handlers/account projections/store web/api web/query web/query/filter web/query/schema web/realtime/resume web/realtime/transcript web/records",
	"web/realtime/resume":          "",
	"web/realtime/transcript":      "events events/log projections projections/store",
	"web/records":                  "handlers/proposal handlers/channel events events/log events/secret handlers handlers/account handlers/budget handlers/chat handlers/permission handlers/record handlers/recordsecret handlers/record/note handlers/record/proposals projections projections/endings projections/schedules web/api web/openapi web/query web/query/filter web/query/schema",
	"web/static":                   "",
	"web/search":                   "projections/textsearch web/api web/openapi web/query",
	"web/shell":                    "handlers/exec sandbox/wire web/api web/openapi",
	"web/stream":                   "events events/log events/log/tail projections projections/artifacts projections/moments web/api web/openapi web/query web/query/filter",
	"web/chromiumtest":             "expect",
	"web/webtest": "handlers/channel bridge/opencode/recording bridge/push bridge/push/service events events/eventstest events/log events/log/tail events/secret expect handlers " +
		"handlers/account handlers/chat handlers/exec handlers/permission handlers/proposal handlers/policy handlers/record handlers/recordsecret handlers/schedule handlers/schedule/preview handlers/worker projections projections/outgoing projections/projectionstest projections/queries projections/store web web/api web/chats",
	"ops":                   "",
	"ops/bench":             "",
	"ops/natsconf":          "atomicfile events sandbox/wire",
	"cmd/pocketcoder-shell": "bridge/opencode/shellsocket",
	"cmd/app": "handlers/proposal handlers/mcpstate bridge/webhook bridge/channel bridge/channel/email bridge/channel/telegram handlers/channel projections/outgoing bridge/mcp/gateway bridge/egress bridge/mcp bridge/opencode bridge/opencode/demo bridge/opencode/ingest bridge/opencode/install bridge/opencode/notes bridge/opencode/outbox bridge/opencode/provider bridge/opencode/procedures bridge/opencode/providerkeys bridge/opencode/providerlist bridge/opencode/restarts bridge/opencode/shells bridge/opencode/shellsocket bridge/opencode/snapshots bridge/push bridge/push/service bridge/ssh cmd/app/lease cmd/app/logdisk cmd/app/logserver cmd/app/node cmd/app/ownshell cmd/app/progress cmd/app/worker cmd/app/workerprocess cmd/datadir cmd/program cmd/viewer events events/log events/log/place events/log/quorum events/log/tail events/offload events/secret " +
		"handlers handlers/agentfile handlers/account handlers/budget handlers/chat handlers/exec handlers/notes handlers/network handlers/permission handlers/permission/explanation handlers/permission/workspace handlers/policy handlers/record handlers/recordsecret ops/natsconf projections projections/executions projections/queries projections/store projections/toolcalls sandbox/isolation web web/api web/metrics web/ports bridge/workers handlers/worker bridge/schedules handlers/schedule handlers/schedule/preview",
	"cmd/app/lease":         "",
	"cmd/app/logdisk":       "cmd/datadir events/log ops/natsconf",
	"cmd/app/logserver":     "cmd/datadir events/recovery ops/natsconf projections/store",
	"cmd/app/node":          "bridge/opencode/outbox bridge/push events handlers handlers/exec web/api web/chats",
	"cmd/app/ownshell":      ". cmd/datadir",
	"cmd/app/progress":      "cmd/datadir cmd/program handlers/account",
	"cmd/app/workerprocess": "cmd/app/worker cmd/program sandbox/isolation web/api",
	"cmd/app/worker":        "cmd/printable cmd/program ops/natsconf sandbox sandbox/isolation sandbox/limit sandbox/wire",
	"cmd/cli": "bridge/opencode/install bridge/opencode/provider cmd/app cmd/app/worker cmd/client cmd/console cmd/console/render cmd/console/replay cmd/console/turn cmd/datadir cmd/printable cmd/program " +
		"cmd/viewer events handlers handlers/chat handlers/permission handlers/policy handlers/record projections projections/moments sandbox/isolation web/export web/ports",
	"cmd/cli/admin":      "atomicfile bridge/push cmd/app cmd/backup cmd/cli cmd/client cmd/datadir cmd/erase cmd/printable cmd/program events events/log handlers handlers/account handlers/agentfile handlers/budget handlers/mcpstate handlers/record handlers/recordsecret handlers/record/mcpserver money ops/natsconf projections projections/queries projections/spending projections/store",
	"cmd/backup":         "cmd/datadir cmd/program events events/archive events/log events/log/blob events/recovery ops/natsconf projections/store",
	"cmd/erase":          "atomicfile cmd/backup cmd/datadir events events/archive events/log events/log/blob events/log/place events/recovery ops/natsconf",
	"cmd/cli/clitest":    "cmd/cli",
	"cmd/cli/doctor":     "bridge/opencode bridge/opencode/install bridge/ssh cmd/app cmd/cli cmd/client cmd/datadir cmd/printable cmd/program cmd/viewer events/recovery ops/natsconf projections/store sandbox/isolation sandbox/limit",
	"cmd/cli/executions": "cmd/cli cmd/client cmd/console/render cmd/datadir cmd/printable cmd/viewer events events/log handlers handlers/exec projections/executions sandbox/wire",
	"cmd/cli/rules": "cmd/cli cmd/client cmd/console/render cmd/datadir cmd/printable events " +
		"handlers handlers/permission handlers/permission/dryrun handlers/permission/workspace handlers/policy handlers/record projections",
	"cmd/cli/schedules":    "cmd/cli cmd/client cmd/datadir cmd/printable events handlers handlers/record handlers/record/schedules handlers/schedule handlers/schedule/preview money projections projections/schedules",
	"cmd/cli/channels":     "cmd/cli cmd/client cmd/datadir cmd/printable events handlers/account handlers/channel handlers/record projections/outgoing",
	"cmd/cli/notes":        "cmd/cli cmd/client cmd/printable events handlers handlers/notes",
	"cmd/cli/procedures":   "cmd/cli cmd/client cmd/printable handlers handlers/proposal handlers/record handlers/record/proposals",
	"cmd/cli/workers":      "cmd/cli cmd/client cmd/datadir cmd/printable events handlers/worker money projections/workers",
	"cmd/client":           "cmd/datadir events events/log events/opencode handlers handlers/account handlers/permission/explanation ops/natsconf projections projections/questions projections/workers",
	"cmd/cmdtest":          "events events/log",
	"cmd/console":          "cmd/client cmd/console/payload cmd/console/render cmd/console/terminal cmd/console/turn cmd/printable events events/log handlers handlers/chat handlers/permission handlers/record handlers/slash projections projections/questions handlers/agentfile projections/workers projections/turns projections/turnstate",
	"cmd/console/payload":  "events events/opencode",
	"cmd/console/render":   "cmd/client cmd/console/payload cmd/printable events events/log handlers handlers/exec handlers/permission handlers/permission/dryrun handlers/permission/explanation handlers/policy/display projections projections/store projections/turnstate sandbox/wire",
	"cmd/console/replay":   "cmd/client cmd/console/payload cmd/console/render cmd/console/turn cmd/datadir cmd/printable cmd/program cmd/viewer events events/log",
	"cmd/console/terminal": "atomicfile cmd/printable",
	"cmd/console/turn":     "cmd/console/payload events events/opencode handlers handlers/permission projections projections/turnstate",
	"cmd/datadir":          "atomicfile",
	"cmd/pocketcoder":      "cmd/cli/channels cmd/cli/notes cmd/cli/procedures cmd/cli cmd/cli/admin cmd/cli/doctor cmd/cli/executions cmd/cli/rules cmd/program sandbox/inside sandbox/isolation cmd/cli/workers cmd/cli/schedules",
	"cmd/printable":        "events handlers/policy/display",
	"cmd/program":          "",
	"cmd/viewer":           "cmd/client cmd/datadir cmd/program sandbox/wire",
}

// freely is the package that all may import, because it says nothing about the design.
const freely = "sleep"

// meaningless are package names that say nothing about what is inside.
var meaningless = []string{"common", "helpers", "internal", "models", "pkg", "types", "util", "utils"}

// packageFiles is a package as `go list` sees it. The ignored files are those of other operating systems.
type packageFiles struct {
	ImportPath, Dir                   string
	GoFiles, CgoFiles, IgnoredGoFiles []string
}

func (p packageFiles) name() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

// files are the paths of all files of the package but its tests, on every operating system.
func (p packageFiles) files() (paths []string) {
	for _, f := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles) {
		if !strings.HasSuffix(f, "_test.go") {
			paths = append(paths, filepath.Join(p.Dir, f))
		}
	}
	return paths
}

func TestPackagesImportOnlyWhatTheTableGivesThem(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		allowed, listed := mayImport[p.name()]
		if !listed {
			t.Errorf("%s is not in the table: say there what it may import", p.name())
			continue
		}
		for _, path := range p.files() {
			for _, imported := range imports(t, path) {
				if imported != freely && !slices.Contains(strings.Fields(allowed), imported) {
					t.Errorf("%s may not import %s", strings.TrimPrefix(path, p.Dir+"/")+" of "+p.name(), imported)
				}
			}
		}
	}
}

func TestTheTableNamesOnlyPackagesThatExist(t *testing.T) {
	t.Parallel()
	exist := map[string]bool{}
	for _, p := range packages(t) {
		exist[p.name()] = true
	}
	for _, name := range slices.Sorted(maps.Keys(mayImport)) {
		for _, n := range append(strings.Fields(mayImport[name]), name) {
			if !exist[n] {
				t.Errorf("the row of %s names %s, which does not exist", name, n)
			}
		}
	}
}

func TestEveryPackageSaysOnceWhatItIs(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		var comments []string
		for _, path := range p.files() {
			if parse(t, path).Doc != nil {
				comments = append(comments, filepath.Base(path))
			}
		}
		if len(comments) != 1 {
			t.Errorf("%s has a package comment in %q, want exactly one", p.name(), comments)
		}
	}
}

// columns is the width of a line. Longer are only rows of a table, and lines with a text that is not broken.
const columns = 120

var (
	tableRow = regexp.MustCompile(`^(\{|"|` + "`" + `|//\t|//go:|case |[\w.]+: )|\},$`)
	longText = regexp.MustCompile(`"(?:[^"\\]|\\.){48,}"|` + "`[^`]{48,}`" + ``)
)

func TestLinesFitTheWindow(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		paths, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_templ.go") { // generated
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			checkColumns(t, path, string(text))
		}
	}
}

// checkColumns reports the lines of a file that are too long, outside of texts of several lines.
func checkColumns(t *testing.T, path, text string) {
	inText := false
	for i, line := range strings.Split(text, "\n") {
		within := inText
		if strings.Count(line, "`")%2 == 1 {
			inText = !inText
			within = true
		}
		if !within && utf8.RuneCountInString(line) > columns && !tableRow.MatchString(strings.TrimSpace(line)) &&
			!longText.MatchString(line) {
			t.Errorf("%s:%d has more than %d columns", path, i+1, columns)
		}
	}
}

func TestPackageNamesMeanSomething(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, word := range strings.Split(p.name(), "/") {
			if slices.Contains(meaningless, word) {
				t.Errorf("%s: %q says nothing about what is inside", p.name(), word)
			}
		}
	}
}

// The shell starts once per command, and each large package that it links makes the start slower.
func TestTheShellLinksOnlyItsProtocolAndALittleOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	out := goList(t, "-deps", "-f", "{{if or .Module (eq .ImportPath \"fmt\" \"net\" \"reflect\")}}{{.ImportPath}}{{end}}", "./cmd/pocketcoder-shell")
	is.New(t).Equal(strings.Fields(string(out)), []string{module + "/bridge/opencode/shellsocket",
		module + "/cmd/pocketcoder-shell"})
}

// listed holds the packages once one test has listed them: go list takes half a second.
var listed struct {
	sync.Mutex
	packages []packageFiles
}

// packages are all packages of the module.
func packages(t *testing.T) []packageFiles {
	t.Helper()
	listed.Lock()
	defer listed.Unlock()
	if listed.packages != nil {
		return listed.packages
	}
	is := is.New(t)
	var list []packageFiles
	found := json.NewDecoder(bytes.NewReader(goList(t, "-json=ImportPath,Dir,GoFiles,CgoFiles,IgnoredGoFiles", "./...")))
	for {
		var p packageFiles
		err := found.Decode(&p)
		if err == io.EOF {
			break
		}
		is.NoErr(err)
		list = append(list, p)
	}
	is.True(len(list) > 1) // go list sees the module
	listed.packages = list
	return list
}

// goList runs go list in the root of the module.
func goList(t *testing.T, args ...string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Stderr = "..", &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	return out
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// imports are the packages of ours that a file imports, relative to the module.
func imports(t *testing.T, path string) (list []string) {
	t.Helper()
	for _, spec := range parse(t, path).Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if imported == module {
			list = append(list, ".")
		}
		if name, ours := strings.CutPrefix(imported, module+"/"); ours {
			list = append(list, name)
		}
	}
	return list
}
