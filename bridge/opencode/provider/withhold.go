package provider

import (
	"encoding/json"
	"maps"
	"net"
	"strings"

	"pocketcoder/handlers/network"
)

// keys are the providers of OpenCode that take a single key: the variables and the names of logins that hold it, as
// OpenCode's catalogue names them, and the hosts of the provider. A * stands for one part of a name.
var keys = []struct{ logins, variables, hosts []string }{
	{[]string{"amazon-bedrock"}, []string{"AWS_BEARER_TOKEN_BEDROCK"}, []string{"bedrock-runtime.*.amazonaws.com", "bedrock-mantle.*.api.aws"}},
	{[]string{"anthropic"}, []string{"ANTHROPIC_API_KEY"}, []string{"api.anthropic.com"}},
	{[]string{"azure"}, []string{"AZURE_API_KEY"}, []string{"*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"}},
	{[]string{"cerebras"}, []string{"CEREBRAS_API_KEY"}, []string{"api.cerebras.ai"}},
	{[]string{"cohere"}, []string{"COHERE_API_KEY"}, []string{"api.cohere.com", "api.cohere.ai"}},
	{[]string{"deepseek"}, []string{"DEEPSEEK_API_KEY"}, []string{"api.deepseek.com"}},
	{[]string{"fireworks-ai"}, []string{"FIREWORKS_API_KEY"}, []string{"api.fireworks.ai"}},
	{[]string{"google"}, []string{"GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"}, []string{"generativelanguage.googleapis.com"}},
	{[]string{"groq"}, []string{"GROQ_API_KEY"}, []string{"api.groq.com"}},
	{[]string{"huggingface"}, []string{"HF_TOKEN"}, []string{"router.huggingface.co"}},
	{[]string{"mistral"}, []string{"MISTRAL_API_KEY"}, []string{"api.mistral.ai"}},
	{[]string{"moonshotai", "moonshotai-cn"}, []string{"MOONSHOT_API_KEY"}, []string{"api.moonshot.ai", "api.moonshot.cn"}},
	{[]string{"nvidia"}, []string{"NVIDIA_API_KEY"}, []string{"integrate.api.nvidia.com"}},
	{[]string{"openai"}, []string{"OPENAI_API_KEY"}, []string{"api.openai.com"}},
	{[]string{"opencode", "opencode-go"}, []string{"OPENCODE_API_KEY"}, []string{"opencode.ai"}},
	{[]string{"openrouter"}, []string{"OPENROUTER_API_KEY"}, []string{"openrouter.ai"}},
	{[]string{"perplexity", "perplexity-agent"}, []string{"PERPLEXITY_API_KEY"}, []string{"api.perplexity.ai"}},
	{[]string{"togetherai"}, []string{"TOGETHER_API_KEY"}, []string{"api.together.xyz"}},
	{[]string{"xai"}, []string{"XAI_API_KEY"}, []string{"api.x.ai"}},
	{
		[]string{"zai", "zai-coding-plan", "zhipuai", "zhipuai-coding-plan"}, []string{"ZHIPU_API_KEY"},
		[]string{"api.z.ai", "open.bigmodel.cn"},
	},
}

// PlaceholderPrefix is how the placeholder of a key begins.
const PlaceholderPrefix = "held-by-the-proxy."

// modelKey is the variable that holds the key of BaseURL.
const modelKey = "POCKETCODER_MODEL_KEY"

// With returns p with keys that are stored as values of variables. A stored key replaces that of the environment.
// Variables that no provider here takes are left out.
func (p Provider) With(values map[string]string) Provider {
	p.Keys = maps.Clone(p.Keys)
	if p.Keys == nil {
		p.Keys = map[string]string{}
	}
	for _, k := range keys {
		for _, name := range k.variables {
			if value := values[name]; value != "" {
				p.Keys[name] = value
			}
		}
	}
	if value := values[modelKey]; value != "" && p.BaseURL != "" {
		p.APIKey = value
	}
	return p
}

// Withhold returns p for OpenCode, with a placeholder in place of each key, and the keys for the egress proxy, which
// puts them into requests. Logins with more than a key are not withheld, because OpenCode renews them, nor are logins
// of providers whose hosts are not known here.
func (p Provider) Withhold() (public Provider, credentials []network.Credential) {
	public = p
	withhold := func(name string, c network.Credential) (placeholder string) {
		c.Placeholder = PlaceholderPrefix + name + ".key" // none is a part of another
		credentials = append(credentials, c)
		return c.Placeholder
	}
	if p.APIKey != "" {
		name, _, _ := strings.Cut(p.Model, "/")
		public.APIKey = withhold("model-url", network.Credential{Value: p.APIKey, Key: modelKey, Providers: []string{name},
			TLS: strings.HasPrefix(strings.ToLower(p.BaseURL), "https:"), Addresses: []string{p.ModelAddress()}})
	}
	public.Keys = map[string]string{}
	var logins map[string]json.RawMessage
	_ = json.Unmarshal([]byte(p.Auth), &logins) // OfUser wrote it
	for _, k := range keys {
		var addresses []string
		for _, host := range k.hosts {
			addresses = append(addresses, net.JoinHostPort(host, "443"))
		}
		for _, name := range k.variables {
			if value := p.Keys[name]; value != "" {
				public.Keys[name] = withhold(name, network.Credential{Value: value, Key: name, Providers: k.logins,
					Addresses: addresses, TLS: true})
			}
		}
		for _, name := range k.logins {
			var login map[string]any
			_ = json.Unmarshal(logins[name], &login) // there may be none, or one without a key
			if value, _ := login["key"].(string); value != "" {
				login["key"] = withhold("login-"+name, network.Credential{Value: value, Key: "login " + name,
					Providers: []string{name}, Addresses: addresses, TLS: true})
				logins[name], _ = json.Marshal(login) // read from JSON
			}
		}
	}
	if len(logins) > 0 {
		auth, _ := json.Marshal(logins) // read from JSON
		public.Auth = string(auth)
	}
	return public, credentials
}
