package ops

import (
	"cmp"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"go.yaml.in/yaml/v3"
)

// composeFile is what the test reads of a compose file, or of several that are given to docker compose together.
type composeFile struct {
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]any            `yaml:"volumes"`
	Networks map[string]any            `yaml:"networks"`
}

type composeService struct {
	Image     string `yaml:"image"`
	Build     any    `yaml:"build"`
	Volumes   []any  `yaml:"volumes"`
	Networks  any    `yaml:"networks"`   // a list or a mapping
	DependsOn any    `yaml:"depends_on"` // a list or a mapping
}

// defaultValue is a variable of a compose file with a default.
var defaultValue = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`)

// merge adds another file, as docker compose does with a second -f.
func (c *composeFile) merge(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var more composeFile
	if err := yaml.Unmarshal(text, &more); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for name, s := range more.Services {
		if base, found := c.Services[name]; found {
			s.Image = cmp.Or(s.Image, base.Image)
			if s.Build == nil {
				s.Build = base.Build
			}
			s.Volumes = append(base.Volumes, s.Volumes...)
		}
		c.Services[name] = s
	}
	maps.Copy(c.Volumes, more.Volumes)
	maps.Copy(c.Networks, more.Networks)
}

// namesIn returns the names of a list or of a mapping.
func namesIn(v any) (names []string) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			names = append(names, one.(string))
		}
	case map[string]any:
		names = slices.Sorted(maps.Keys(v))
	}
	return names
}

// volumesOf returns the named volumes of a service, without directories of the machine.
func volumesOf(s composeService) (names []string) {
	for _, v := range s.Volumes {
		source := ""
		switch v := v.(type) {
		case string:
			source, _, _ = strings.Cut(defaultValue.ReplaceAllString(v, "$1"), ":")
		case map[string]any:
			if v["type"] == "volume" {
				source, _ = v["source"].(string)
			}
		}
		if source != "" && !strings.ContainsAny(source[:1], "./~$") {
			names = append(names, source)
		}
	}
	return names
}

func TestComposeFilesNameWhatTheyDefine(t *testing.T) {
	t.Parallel()
	const base = "../compose.yaml"
	for _, files := range [][]string{{base}, {"compose.cluster.yaml"}, {base, "compose.mcp.yaml"}} {
		t.Run(files[len(files)-1], func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			c := composeFile{map[string]composeService{}, map[string]any{}, map[string]any{"default": nil}}
			for _, f := range files {
				c.merge(t, f)
			}
			is.True(len(c.Services) > 1)
			for name, s := range c.Services {
				if s.Image == "" && s.Build == nil {
					t.Errorf("the service %s has neither an image nor a build", name)
				}
				for _, n := range namesIn(s.DependsOn) {
					if _, found := c.Services[n]; !found {
						t.Errorf("%s depends on %s, which is no service", name, n)
					}
				}
				for _, n := range namesIn(s.Networks) {
					if _, found := c.Networks[n]; !found {
						t.Errorf("%s is in the network %s, which is not defined", name, n)
					}
				}
				for _, n := range volumesOf(s) {
					if _, found := c.Volumes[n]; !found {
						t.Errorf("%s uses the volume %s, which is not defined", name, n)
					}
				}
			}
		})
	}
}
