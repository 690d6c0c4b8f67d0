// An OpenID provider: `node server.mjs '{"issuer": …}'`. It writes "ready" once it serves, and ends with its input.
//
// issuer, listen, port   whom it is, and where
// key, cert              PEM files
// clients                as oidc-provider's configuration has them
// accounts               claims by name; the password is not checked
// idTokenSeconds         how long an ID token is good
// conform                true: the claims of scopes are at the UserInfo endpoint alone, as the standard has it
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import Provider from "oidc-provider";

const c = JSON.parse(process.argv[2]);
const provider = new Provider(c.issuer, {
	clients: c.clients,
	cookies: { keys: ["a key of tests"] },
	claims: {
		openid: ["sub"],
		email: ["email", "email_verified"],
		groups: ["groups", "number"],
	},
	scopes: ["openid", "email", "groups", "offline_access"],
	conformIdTokenClaims: c.conform,
	pkce: { methods: ["S256"], required: () => true },
	ttl: { IdToken: c.idTokenSeconds },
	features: { devInteractions: { enabled: true } },
	findAccount: (_, id) =>
		c.accounts[id] && { accountId: id, claims: async () => ({ sub: id, ...c.accounts[id] }) },
});
createServer({ key: readFileSync(c.key), cert: readFileSync(c.cert) }, provider.callback()).listen(
	c.port, c.listen, () => console.log("ready"));
process.stdin.on("end", () => process.exit(0)).resume();
