package outbox

import (
	"context"
	"fmt"

	"pocketcoder/bridge/opencode/client"
)

// UsableProviders lists the model providers that OpenCode can use by id, once OpenCode is there to say. After that,
// Configured returns the model that OpenCode recommends.
func (o *Outbox) UsableProviders(ctx context.Context) ([]client.ModelProvider, error) {
	if err := o.WaitConnected(ctx); err != nil {
		return nil, fmt.Errorf("list usable providers: %w", err)
	}
	models, err := o.models(ctx)
	return models.Providers, err
}

// Providers lists the model providers by id, once OpenCode is there to say.
func (o *Outbox) Providers(ctx context.Context) ([]client.ModelProvider, error) {
	if err := o.WaitConnected(ctx); err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	return o.Current().Providers(ctx, o.Directory)
}
