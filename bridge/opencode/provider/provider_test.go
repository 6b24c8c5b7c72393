package provider

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/network"
	"pocketcoder/ops/expect"
)

// user is the environment of a user whose auth.json has this content, or is missing when it is empty.
func user(t *testing.T, auth string, env map[string]string) func(string) string {
	t.Helper()
	home := t.TempDir()
	if auth != "" {
		expect.WriteFile(t, filepath.Join(home, ".local", "share", "opencode", "auth.json"), auth)
	}
	return func(name string) string {
		if name == "HOME" {
			return home
		}
		return env[name]
	}
}

const logins = `{"openai":{"type":"api","key":"sk-of-openai","metadata":{"account":"acc-of-openai"}},
	"github-copilot":{"type":"oauth","refresh":"gho-refresh","access":"gho-access","expires":17},
	"corp":{"type":"wellknown","key":"CORP_TOKEN","token":"corp-token"}, "odd":"text"}`

func TestAUserWithoutKeysOrLoginsHasNoProvider(t *testing.T) {
	t.Parallel()
	for _, auth := range []string{"", "{}", "null", `{"corp":{"type":"wellknown","key":"K","token":"T"}}`} {
		is := is.New(t)
		p, found, err := OfUser(user(t, auth, map[string]string{"PATH": "/bin", "OPENAI_API_KEY": ""}))
		is.NoErr(err)
		is.Equal(found, false)
		is.Equal(p.Auth, "")
	}
}

func TestKeysAreTakenFromTheEnvironment(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p, found, err := OfUser(user(t, "", map[string]string{"ANTHROPIC_API_KEY": "sk-ant", "GROQ_API_KEY": "gsk",
		"AWS_SECRET_ACCESS_KEY": "no"}))
	is.NoErr(err)
	is.True(found)
	is.Equal(p.Keys, map[string]string{"ANTHROPIC_API_KEY": "sk-ant", "GROQ_API_KEY": "gsk"})
}

func TestLoginsAreTakenButThoseThatFetchConfiguration(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p, found, err := OfUser(user(t, logins, nil))
	is.NoErr(err)
	is.True(found)
	var stored map[string]map[string]any
	is.NoErr(json.Unmarshal([]byte(p.Auth), &stored))
	is.Equal(len(stored), 2)
	is.Equal(stored["openai"]["key"], "sk-of-openai")
	is.Equal(stored["github-copilot"]["expires"], 17.0)

	elsewhere := t.TempDir()
	expect.WriteFile(t, filepath.Join(elsewhere, "opencode", "auth.json"), `{"xai":{"type":"api","key":"xai-key"}}`)
	p, found, err = OfUser(user(t, logins, map[string]string{"XDG_DATA_HOME": elsewhere}))
	is.NoErr(err)
	is.True(found)
	is.Equal(p.Auth, `{"xai":{"type":"api","key":"xai-key"}}`)
}

func TestABrokenLoginFileIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	for _, auth := range []string{`{"openai":`, `[]`, "\x00"} {
		is := is.New(t)
		_, found, err := OfUser(user(t, auth, map[string]string{"ANTHROPIC_API_KEY": "sk-ant"}))
		is.True(err != nil)
		is.Equal(found, false)
		expect.Contains(t, err.Error(), filepath.Join("opencode", "auth.json"))
	}
	is := is.New(t)
	home := t.TempDir()
	expect.WriteFile(t, filepath.Join(home, "opencode", "auth.json", "a directory"), "")
	_, _, err := OfUser(user(t, "", map[string]string{"XDG_DATA_HOME": home}))
	is.True(err != nil)
	expect.Contains(t, err.Error(), filepath.Join(home, "opencode", "auth.json"))
}

func TestEveryKeyAndLoginIsASecret(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p, _, err := OfUser(user(t, logins, map[string]string{"ANTHROPIC_API_KEY": "sk-ant"}))
	is.NoErr(err)
	p.APIKey = "key-of-the-server"
	secrets := p.Secrets()
	slices.Sort(secrets)
	is.Equal(secrets, []string{"acc-of-openai", "gho-access", "gho-refresh", "key-of-the-server", "sk-ant",
		"sk-of-openai"})
}

func TestTheModelsConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		provider Provider
		want     string
	}{
		"none":      {Provider{}, `{"disabled_providers":["opencode"]}`},
		"known":     {Provider{Model: "anthropic/claude"}, `{"disabled_providers":["opencode"],"model":"anthropic/claude"}`},
		"with path": {Provider{Model: "openrouter/meta/llama"}, `{"disabled_providers":["opencode"],"model":"openrouter/meta/llama"}`},
		"zen":       {Provider{Model: "opencode/free"}, `{"model":"opencode/free"}`},
		"zen's key": {Provider{Keys: map[string]string{"OPENCODE_API_KEY": "k"}}, `{}`},
		"zen login": {Provider{Auth: `{"opencode":{"type":"api","key":"k"}}`}, `{}`},
		"without a key": {Provider{Model: "custom/a/b", BaseURL: "http://127.0.0.1:1/v1"},
			`{"disabled_providers":["opencode"],"model":"custom/a/b","provider":{"custom":{"npm":"@ai-sdk/openai-compatible","name":"custom",
			"options":{"baseURL":"http://127.0.0.1:1/v1"},
			"models":{"a/b":{"name":"a/b","reasoning":true,"tool_call":true,"limit":{"context":32768,"output":8192},
			"cost":{"input":0,"output":0}}}}}}`},
		"own server": {Provider{Model: "demo/demo", BaseURL: "http://127.0.0.1:1/v1", APIKey: "k", Context: 200_000, Price: Price{2.5, 5}},
			`{"disabled_providers":["opencode"],"model":"demo/demo","provider":{"demo":{"npm":"@ai-sdk/openai-compatible","name":"demo",
			"options":{"baseURL":"http://127.0.0.1:1/v1","apiKey":"k"},
			"models":{"demo":{"name":"demo","reasoning":true,"tool_call":true,"limit":{"context":200000,"output":32000},
			"cost":{"input":2.5,"output":5}}}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			config, err := c.provider.Config()
			is.NoErr(err)
			b, err := json.Marshal(config)
			is.NoErr(err)
			var got, want any
			is.NoErr(json.Unmarshal(b, &got))
			is.NoErr(json.Unmarshal([]byte(c.want), &want))
			is.Equal(got, want)
		})
	}
}

func TestAModelThatNamesNoneIsAnError(t *testing.T) {
	t.Parallel()
	for _, p := range []Provider{{Model: "claude"}, {Model: "/claude"}, {Model: "anthropic/"}, {Model: "/"}} {
		is := is.New(t)
		_, err := p.Config()
		is.True(err != nil)
		expect.Contains(t, err.Error(), `"`+p.Model+`": want provider/model`)
	}
	is := is.New(t)
	_, err := Provider{BaseURL: "http://127.0.0.1:1/v1"}.Config()
	is.True(err != nil)
	is.Equal(err.Error(), "provider at http://127.0.0.1:1/v1: no model named")
}

func TestTheModelAddressIsThatOfTheModelURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                             "",
		"http://127.0.0.1:11434/v1":    "127.0.0.1:11434",
		"https://api.example.com/v1":   "api.example.com:443",
		"http://models.example.com/v1": "models.example.com:80",
		"http://[::1]:8000/v1":         "[::1]:8000",
	} {
		is := is.New(t)
		is.Equal(Provider{BaseURL: url, Keys: map[string]string{"OPENAI_API_KEY": "k"}}.ModelAddress(), want)
	}
}

func TestOpenCodeGetsPlaceholdersForKeys(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := Provider{
		Model: "own/m", BaseURL: "HTTPS://models.example.com/v1", APIKey: "sk-own", Keys: map[string]string{"ZHIPU_API_KEY": "sk-zhipu"},
		Auth: `{"openai":{"type":"api","key":"sk-openai","metadata":{"account":"a"}},"github-copilot":{"type":"oauth","access":"gho"},"anthropic":{"type":"oauth","access":"ant"},` +
			`"rare":{"type":"api","key":"sk-rare"}}`,
	}
	public, credentials := p.Withhold()
	is.Equal(public.APIKey, "held-by-the-proxy.model-url.key")
	is.Equal(public.Keys, map[string]string{"ZHIPU_API_KEY": "held-by-the-proxy.ZHIPU_API_KEY.key"})
	var logins map[string]map[string]any
	is.NoErr(json.Unmarshal([]byte(public.Auth), &logins))
	is.Equal(logins, map[string]map[string]any{
		"openai":         {"type": "api", "key": "held-by-the-proxy.login-openai.key", "metadata": map[string]any{"account": "a"}},
		"github-copilot": {"type": "oauth", "access": "gho"},
		"anthropic":      {"type": "oauth", "access": "ant"},
		"rare":           {"type": "api", "key": "sk-rare"},
	})
	is.Equal(credentials, []network.Credential{
		{Placeholder: "held-by-the-proxy.model-url.key", Value: "sk-own", Key: "POCKETCODER_MODEL_KEY", Providers: []string{"own"}, Addresses: []string{"models.example.com:443"}, TLS: true},
		{Placeholder: "held-by-the-proxy.login-openai.key", Value: "sk-openai", Key: "login openai", Providers: []string{"openai"}, Addresses: []string{"api.openai.com:443"}, TLS: true},
		{Placeholder: "held-by-the-proxy.ZHIPU_API_KEY.key", Value: "sk-zhipu", Key: "ZHIPU_API_KEY", Providers: []string{"zai", "zai-coding-plan", "zhipuai", "zhipuai-coding-plan"}, Addresses: []string{"api.z.ai:443", "open.bigmodel.cn:443"}, TLS: true},
	})
	is.Equal(p.Keys["ZHIPU_API_KEY"], "sk-zhipu") // p is as it was
}
