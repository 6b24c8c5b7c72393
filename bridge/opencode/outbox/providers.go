package outbox

import (
	"context"
	"fmt"

	"pocketcoder/bridge/opencode/client"
)

// UsableProviders waits for OpenCode and lists the model providers that it can use, by id. Afterwards Configured
// returns the model that OpenCode recommends.
func (o *Outbox) UsableProviders(ctx context.Context) ([]client.ModelProvider, error) {
	if err := o.Ingest.WaitConnected(ctx); err != nil {
		return nil, fmt.Errorf("list usable providers: %w", err)
	}
	models, err := o.models(ctx)
	return models.Providers, err
}

// Providers waits for OpenCode and lists all model providers, by id.
func (o *Outbox) Providers(ctx context.Context) ([]client.ModelProvider, error) {
	if err := o.Ingest.WaitConnected(ctx); err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	return o.Ingest.Current().Providers(ctx, o.Directory)
}
