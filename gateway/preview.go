package gateway

import (
	"log/slog"
	"net/http"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/oidc"
	"github.com/gateweigh/gateweigh/gateway/portal"
)

// PreviewPages serves the portal's pages in every state and language, and a list of them. It reads the configuration
// file and the folder of pages at each request; either may be empty: without a file there are the built-in title and
// terms and every way to log in, and without a folder the file's pages. Of several networks with a portal the first
// one's is shown until another is chosen.
func PreviewPages(file, folder string) http.Handler {
	return portal.Preview(func(network string) (shown portal.Previewed, err error) {
		if file != "" {
			if shown, err = previewOf(file, network); err != nil {
				return shown, err
			}
		}
		if folder != "" {
			shown.Config.Templates = folder
		}
		return shown, nil
	})
}

// previewOf returns what the configuration file has of a network's portal.
func previewOf(file, network string) (shown portal.Previewed, err error) {
	cfg, err := config.Load(file)
	if err != nil {
		return shown, err
	}
	var chosen *config.Config
	for _, n := range cfg.All() {
		if !n.Portal.Enabled {
			continue
		}
		shown.Networks = append(shown.Networks, n.Name)
		if chosen == nil || n.Name == network {
			chosen = n
		}
	}
	if chosen == nil {
		return shown, nil
	}
	if shown.Network = chosen.Name; len(shown.Networks) == 1 {
		shown.Networks = nil
	}
	g := &gateway{cfg: chosen, log: slog.Default()}
	shown.Config = g.portalConfig(nil)
	if chosen.Auth.Has(config.MethodOIDC) {
		if shown.Config.Providers, err = oidc.New(g.providersConfig()); err != nil {
			return shown, err
		}
	}
	return shown, nil
}
