package gateway

import (
	"net/http"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/portal"
)

// PreviewPages serves the portal's pages in every state and language, and a list of them. It reads the configuration
// file and the folder of pages at each request; either may be empty: without a file there are the built-in title and
// terms, and without a folder the file's pages. Of several networks the first one's portal is shown.
func PreviewPages(file, folder string) http.Handler {
	return portal.Preview(func() (portal.Config, error) {
		c := portal.Config{}
		if file != "" {
			cfg, err := config.Load(file)
			if err != nil {
				return c, err
			}
			for _, n := range cfg.Networks {
				if n.Portal.Enabled {
					cfg = n
					break
				}
			}
			p := cfg.Portal
			c = portal.Config{Title: p.Title, Terms: p.Terms, Templates: p.Templates}
		}
		if folder != "" {
			c.Templates = folder
		}
		return c, nil
	})
}
