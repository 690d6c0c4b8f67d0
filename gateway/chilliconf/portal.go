package chilliconf

import (
	"net/url"
	"strconv"
)

// portal reads the portal elsewhere. A portal of CoovaChilli's own, on the gateway, is replaced by gatewayd's pages.
func (c *converter) portal() {
	c.certificate()
	listen, _ := c.get("uamlisten")
	c.uamPort()
	secret, hasSecret := c.get("uamsecret")
	place, hasPlace := c.get("locationname")
	if other, ok := c.get("radiuslocationname"); ok && !hasPlace {
		place, hasPlace = other, true
	}
	server, hasServer := c.get("HS_UAMSERVER")
	o, ok := c.get("uamserver")
	if why := c.unfit(o, ok, listen.value); why != "" {
		if hasServer && !ok {
			c.note(server, "has no HS_UAMFORMAT, the portal's URL: set uam.portal_url")
		}
		if hasSecret {
			c.note(secret, "left out, because %s: with uam.portal_url, write it into a file and set uam.secret_file", why)
		}
		if hasPlace {
			c.note(place, "left out, because %s: with uam.portal_url, set uam.location", why)
		}
		return
	}
	c.set("uam", "portal_url", o.value)
	schemes := []string{"chap"}
	if hasSecret {
		c.secret("uam", "secret_file", "uam.secret", secret.value)
		schemes = []string{"chap", "pap"}
		if secret.value == "change-me" || secret.value == "uamsecret" || secret.value == "ht2eb8ej6s4et3rg1ulp" {
			c.note(secret, "is an example's: choose a secret, here and at the portal")
		}
	} else {
		c.note(o, "has no uamsecret: choose one, and set uam.secret_file")
	}
	c.set("uam", "schemes", schemes)
	c.set("uam", "http", true)
	c.note(o, "passwords may come over plain HTTP as before (uam.http), in both schemes: take out what the portal does "+
		"not use")
	if hasPlace {
		c.set("uam", "location", place.value)
	}
}

// unfit returns why there is no portal elsewhere, "" if uamserver is one; what is wrong with it is noted. own is the
// gateway's address.
func (c *converter) unfit(server option, given bool, own string) (why string) {
	u, err := url.Parse(server.value)
	switch {
	case !given:
		return "there is no uamserver (HS_UAMFORMAT)"
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "" || u.User != nil:
		c.note(server, "is no web address that a portal can have: set uam.portal_url")
		return "uamserver is no web address"
	case u.Hostname() == own || u.Hostname() == "1.0.0.1":
		c.note(server, "is a portal on the gateway itself, which gatewayd's own pages replace (portal.templates changes "+
			"them)")
		return "gatewayd's own pages are the portal"
	}
	return ""
}

// certificate notes what https needs: gatewayd's certificate is for a name, which CoovaChilli has in another place.
func (c *converter) certificate() {
	c.flag("uamuissl")
	cert, hasCert := c.get("sslcertfile")
	key, hasKey := c.get("sslkeyfile")
	switch {
	case hasCert && hasKey:
		c.note(cert, "portal.tls_cert and portal.tls_key need portal.name, which the certificate is for: set the three "+
			"(the key is %s)", key.value)
	case hasCert:
		c.note(cert, "has no sslkeyfile: with both, set portal.tls_cert, portal.tls_key and portal.name")
	case hasKey:
		c.note(key, "has no sslcertfile: with both, set portal.tls_cert, portal.tls_key and portal.name")
	}
}

// uamPort reads the port of the gateway's own requests, which is portal.port.
func (c *converter) uamPort() {
	port, ok := c.get("uamport")
	if !ok {
		return
	}
	n, err := strconv.ParseUint(port.value, 10, 16)
	if err != nil || n == 0 || n == 53 {
		c.note(port, "%q is no port that the portal can have: left out, set portal.port", port.value)
		return
	}
	c.set("portal", "port", n)
}
