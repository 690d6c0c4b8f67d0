package config

// meaning is a key's description on the reference page. Its type and its default come from the settings.
type meaning struct {
	text string // Markdown; sentences without the last full stop
	// unset says what holds without the key if its default is not a value that it can have; empty otherwise.
	unset string
}

const required = "required"

// meanings has every key. docs/reference/gatewayd-keys.md is made of it.
var meanings = map[string]meaning{
	"state_dir": {text: "folder of leases, sessions and keys, which a reboot must not lose; it also says where " +
		"gatewayd switched forwarding on"},
	"run_dir":    {text: "folder of the control socket"},
	"log_level":  {text: "SIGHUP applies a change"},
	"log_format": {text: "of the log, which goes to standard error"},

	"lan.interface": {unset: required, text: "interface towards the clients. Where that is a port of a bridge or " +
		"bond: the bridge or bond"},
	"lan.address": {unset: required, text: "the gateway's address there, with the network's length. The interface " +
		"must have it already; with `tun` it must not have it " +
		"([data paths](../data-paths.md#tun))"},
	"lan.address6": {unset: "none: clients have no IPv6", text: "the gateway's IPv6 address there, with the length 64. " +
		"The interface must have it already. Clients make addresses of their own of this prefix " +
		"([IPv6](../ipv6.md)); with `ebpf`, and with `kernel` for PPPoE clients"},
	"lan.client_prefixes": {unset: "none: clients share the /64 of `lan.address6`", text: "an IPv6 network of which " +
		"each client has a /64 of its own (RFC 8273), or `\"delegated\"`: of the prefixes that the provider delegates. The " +
		"provider must route the network to this machine"},
	"lan.prefix_pool": {text: "table of name = IPv6 network, two at most, beside `lan.client_prefixes`: of these a " +
		"client has a /64 while its session lasts, where RADIUS names one (Framed-IPv6-Pool, or " +
		"Stateful-IPv6-Address-Pool) or the /64 itself (Framed-IPv6-Prefix)"},
	"lan.inbound6": {unset: "nobody", text: "networks outside whose hosts reach clients by IPv6 unasked. What " +
		"others send passes only while the client has lately sent a packet of the same connection (RFC 6092). " +
		"`[\"::/0\"]`: everybody"},
	"lan.nat64": {text: "prefix by which clients without IPv4 reach IPv4 hosts. They are told it (RFC 8781); the " +
		"NAT64 is another machine's"},
	"lan.repeaters": {unset: "none", text: "MAC addresses of [repeaters that show their own MAC address for all devices " +
		"behind them](../gateway.md#repeaters): each address behind one is a client of its own, up to 250. Not with " +
		"`lan.address6`"},
	"lan.nd_proxy": {text: "for a LAN whose switch or access point isolates clients (`bridge link set dev PORT isolated " +
		"on`). `\"dad\"`: the gateway tells a client that probes another one's IPv6 address that it is taken (RFC " +
		"6957). `\"all\"`: it also answers clients' neighbour solicitations for each other (RFC 4389), so that clients " +
		"that are logged in reach each other through it, and both are billed. `\"off\"`: clients hear each other"},
	"network.name": {unset: required, text: "a table `[[network]]` for each of [several networks](../networks.md), in " +
		"place of `[lan]`. In it `[network.dhcp]`, and likewise `dhcp6`, `dns`, `nat`, `garden`, `portal`, `auth`, `oidc`, " +
		"`click_through`, `devices`, `uam`, `pppoe`, `ident`, `radius`, `users`, `limits` and `prefix_pool`, have the " +
		"network's own keys; the keys of the file's tables are the defaults. The network's folders in `state_dir` and " +
		"`datapath.pin_dir` have this name"},
	"network.reaches": {unset: "none", text: "names of other networks: their clients and the clients of this network " +
		"reach each other once they are logged in"},
	"network.subnet": {unset: "none: its clients have no addresses of it", text: "which /64 of the prefix that the " +
		"provider delegates (`wan.delegation`) the network's clients have addresses of, beside those of " +
		"`network.address6`: of a /56 0 to 255. It stays when other networks come and go"},
	"network.interface": {unset: required, text: "as `lan.interface`. VLAN interfaces are interfaces like others"},
	"network.address":   {unset: required, text: "as `lan.address`. Networks must not overlap"},
	"network.address6":  {unset: "none: its clients have no IPv6", text: "as `lan.address6`"},
	"network.client_prefixes": {unset: "none: its clients share the /64 of `network.address6`",
		text: "as `lan.client_prefixes`"},
	"network.inbound6":  {unset: "nobody", text: "as `lan.inbound6`"},
	"network.nat64":     {text: "as `lan.nat64`"},
	"network.repeaters": {unset: "none", text: "as `lan.repeaters`"},
	"network.nd_proxy":  {text: "as `lan.nd_proxy`"},

	"wan.interface": {unset: required, text: "interface that clients are forwarded to"},

	"wan.delegation": {text: "`true`: the provider delegates an IPv6 prefix on `wan.interface` (DHCPv6-PD), and clients " +
		"have addresses of it beside those of `lan.address6`, which may be a private one (`fd…`) then"},

	"dhcp.mode": {text: "`\"server\"`: gatewayd leases addresses. `\"external\"`: [another program on this " +
		"machine](../gateway.md#another-dhcp-server) does; `tun` needs `\"server\"`"},
	"dhcp.pools": {unset: "all of the LAN", text: "first and last address of each pool"},
	"dhcp.lease": {text: "length of a lease"},
	"dhcp.preauth_lease": {unset: "`dhcp.lease`", text: "length of the lease of clients that are not logged in, at most " +
		"`dhcp.lease`. The first renewal after the login, which comes after half of it at the latest, gets `dhcp.lease`"},
	"dhcp.dns":    {unset: "the gateway", text: "resolvers in DHCP replies"},
	"dhcp.domain": {text: "domain in DHCP replies"},
	"dhcp.mtu":    {text: "MTU in DHCP replies, bytes"},
	"dhcp.claims": {text: "`true`: [devices with an address of their own](../gateway.md#devices-with-an-address-of-" +
		"their-own) may use it although nobody leased it"},
	"dhcp.claimable": {unset: "those of the LAN outside all pools", text: "first and last of the addresses for which " +
		"`dhcp.claims` is. They may be in `dhcp.pools`: DHCP leases none that a device has claimed"},
	"dhcp.ipv6_only": {unset: "they get one", text: "how long clients that can do without an IPv4 address, as phones " +
		"can, get none (RFC 8925)"},
	"dhcp.static": {text: "table of MAC address = IPv4 address, which is reserved for that client"},
	"dhcp.relays": {text: "[relays](../relays.md) that may send clients' messages: `\"10.1.0.2\"`, whose clients are on " +
		"the LAN itself, " +
		"or `\"10.1.64.1/24 via 10.1.0.2\"`, whose clients are behind it: its address there (giaddr) with the " +
		"length of their network, and its address on the LAN"},
	"dhcp.relay_information": {text: "`true`: [switches](../relays.md) add option 82 to all messages of clients on the " +
		"LAN, and let none pass that a client has added. Otherwise that of relays is believed alone"},
	"dhcp.options": {text: "table of an option's number = its value"},
	"dhcp.boot.vendor_class": {unset: "any", text: "a table `[[dhcp.boot]]` for each class of clients that boot from " +
		"the network; a client gets the first that it fits. What its vendor class begins with (option 60): " +
		"`\"PXEClient:Arch:00000\"` is BIOS, `\"PXEClient:Arch:00007\"` x86-64 UEFI, `\"HTTPClient\"` UEFI's " +
		"HTTP boot (RFC 4578, numbers by IANA)"},
	"dhcp.boot.user_class": {unset: "any", text: "a user class of the client (option 77), such as `\"iPXE\"`"},
	"dhcp.boot.server": {unset: "none", text: "address of the TFTP server (siaddr, option 66). Clients reach it before " +
		"login if it is in the LAN, or in `garden.prefixes`"},
	"dhcp.boot.file": {unset: required, text: "file that the client loads there, or a URL (option 67)"},

	"dhcp6.mode": {text: "what clients with `lan.address6` get by DHCPv6. `\"stateless\"`: options, and they register " +
		"the addresses that they make (RFC 9686). `\"stateful\"`: addresses too"},
	"dhcp6.pd_pool": {unset: "none", text: "an IPv6 network of which clients that ask are delegated prefixes (IA_PD), " +
		"or `\"delegated\"`: what the LAN does not need of the prefixes that the provider delegates. Hosts are told so in " +
		"router advertisements (RFC 9762). The provider must route the network to this machine"},
	"dhcp6.pd_length": {text: "length of the prefixes that clients are delegated. Those that ask for a longer one, up " +
		"to 64, get it"},
	"dhcp6.prefix_pool": {text: "table of name = IPv6 network, two at most, beside `dhcp6.pd_pool`: of these a client " +
		"is delegated a prefix where RADIUS names one (Delegated-IPv6-Prefix-Pool) or the prefix itself " +
		"(Delegated-IPv6-Prefix)"},
	"dns.mode": {text: "`\"server\"`: gatewayd answers clients. `\"external\"`: another program on this " +
		"machine does, on the gateway's address"},
	"dns.upstreams": {unset: required, text: "upstream resolvers, in order of preference"},
	"dns.answer_aaaa": {text: "whether clients get IPv6 addresses in answers. With `lan.address6` the default " +
		"is `true`"},

	"garden.domains": {text: "names that clients reach before login, in any script, with a dot at the end or without. " +
		"`\"*.example.org\"` is all below it"},
	"garden.prefixes": {text: "networks and addresses that clients reach before login. Addresses of the LAN are " +
		"refused; `check-config` warns of other addresses of this machine, which are never open"},
	"garden.ports": {text: "single ports of names, networks and addresses, a value for each. Addresses are refused and " +
		"warned of as in `garden.prefixes`, and `check-config` warns of values that another value includes. HTTP of the " +
		"names by which devices look for a login page goes to the portal, whatever shares their address or name in " +
		"the garden; `check-config` warns of names of the garden that include such a name"},

	"nat.masquerade": {text: "`true`: clients have the address of `wan.interface` outside ([NAT](../nat.md))"},
	"nat.source": {text: "instead of `nat.masquerade`: addresses that clients have outside; a client keeps one " +
		"address. `wan.interface` has them, or the provider routes them to this " +
		"machine. Without `nat.ports_per_client` they are consecutive"},
	"nat.ports_per_client": {unset: "all shared", text: "ports that each client has to itself, by [a " +
		"formula](../nat.md#ports-for-each-client-without-a-log)"},
	"nat.hairpin": {text: "clients reach forwarded ports by the outside address, too"},
	"nat.except":  {text: "destinations that see the clients' own addresses"},
	"nat.inbound": {unset: "nobody", text: "networks and addresses behind `wan.interface` whose hosts reach clients' " +
		"own addresses unasked. What others send there is dropped, " +
		"and not counted. `[\"0.0.0.0/0\"]`: everybody. Parts of the LAN " +
		"are refused"},
	"nat.forward.proto": {unset: required, text: "a table `[[nat.forward]]` for each forward"},
	"nat.forward.ports": {unset: required, text: "outside port, or range, whose ports keep their numbers. Ports at " +
		"which the machine itself is reached from outside are " +
		"refused: gatewayd's own, and those of other programs when it starts"},
	"nat.forward.to": {unset: required, text: "the client. Reserve its address in `dhcp.static`. Packets pass while " +
		"the client is logged in"},

	"portal.enabled": {text: "`false`: only `gatewayd login` logs clients in"},
	"portal.port":    {text: "TCP port on the gateway's address"},
	"portal.port_80": {text: "`http://ADDRESS/` and `http://NAME/` lead to the portal, before and after login: port " +
		"80 of the gateway's address is the portal's too. " +
		"Another program that has it when gatewayd starts keeps it, out of reach before login"},
	"portal.name":     {text: "host name of the portal; gatewayd's DNS answers for it"},
	"portal.tls_port": {text: "port for HTTPS, with a certificate"},
	"portal.tls_cert": {text: "certificate chain, PEM"},
	"portal.tls_key":  {text: "its key, PEM"},
	"portal.templates": {text: "folder whose files replace [built-in pages, their style and " +
		"texts](../portal-pages.md)"},
	"portal.title":       {text: "heading of the pages"},
	"portal.success_url": {unset: "the requested page", text: "where clients go after login"},
	"portal.terms":       {text: "terms that click-through clients accept"},
	"portal.wispr": {text: "`true`: smart clients log in by themselves ([WISPr](../uam.md#smart-clients)); needs " +
		"`portal.tls_cert`, and `\"users\"` or `\"radius\"` in `auth.methods`"},

	"uam.portal_url": {unset: "none: clients see the built-in pages", text: "a [portal elsewhere that was made for " +
		"CoovaChilli](../uam.md), to which clients are sent to log in. Its host and port are in the walled garden. With it " +
		"`portal.port` is 3990 unless set, and the other pages are not shown"},
	"uam.secret":      {unset: "none", text: "secret that the portal shares (`uamsecret`)"},
	"uam.secret_file": {unset: "none", text: "file with it, instead; not readable by everyone"},
	"uam.nas_id":      {unset: "`radius.nas_identifier`", text: "what the portal knows this gateway by (`nasid`)"},
	"uam.location":    {unset: "none", text: "name of the place, for the portal and for smart clients"},
	"uam.schemes": {unset: required + " with `uam.portal_url`", text: "how the portal sends passwords; [all are " +
		"weak](../uam.md#how-weak-the-schemes-are). `\"chap\"` and `\"mschapv2\"` need RADIUS servers that know the " +
		"password; `\"plain\"` is taken over https only"},
	"uam.http": {text: "`true`: passwords in a scheme other than `\"plain\"` may come over plain HTTP, where others on " +
		"the network read them. Portals that write `http://` before `uamip` need it"},
	"uam.jsonp": {text: "`true`: answers in JSON may be scripts (`callback`), as ChilliLibrary.js needs. Every page " +
		"that the device opens can then read who is logged in, and log in or out"},

	"auth.methods": {unset: required, text: "how clients log in; `\"voucher\"`: by the codes of " +
		"[vouchers](../vouchers.md); `\"oidc\"`: at [OpenID providers](../openid-connect.md)"},

	"oidc.name": {unset: required, text: "a table `[[oidc]]` for each [OpenID provider](../openid-connect.md), with " +
		"`\"oidc\"` in `auth.methods`. The name is in the redirect URI, `/oidc/NAME/callback` at the portal's https URL"},
	"oidc.label": {unset: "`oidc.name`", text: "what the button and the pages call the provider"},
	"oidc.issuer": {unset: required, text: "the provider's issuer, exactly as it writes it; its metadata are at " +
		"`ISSUER/.well-known/openid-configuration`"},
	"oidc.client_id":          {unset: required, text: "as whom the provider knows this gateway"},
	"oidc.client_secret_file": {unset: "a public client", text: "file with the client secret; not readable by everyone"},
	"oidc.ca_file":            {unset: "the system's", text: "certificate authorities of the provider's hosts, PEM"},
	"oidc.scopes":             {unset: "`[\"email\"]`", text: "scopes that are asked for beside `openid`"},
	"oidc.user": {unset: "`email` if `email_verified` is true, otherwise `sub`", text: "the claim that is the user's " +
		"name in sessions, accounting and the log. Of `\"email\"` only addresses that the provider has verified are taken"},
	"oidc.domains": {unset: "any", text: "domains of e-mail addresses: others, and those that the provider has not " +
		"verified, may not log in"},
	"oidc.require": {unset: "nothing", text: "a claim, a text or a list of texts, that must have one of `oidc.values`, " +
		"such as `\"groups\"`"},
	"oidc.values":  {unset: "none", text: "values of `oidc.require` that may log in"},
	"oidc.profile": {unset: "none", text: "the `[[limits.profile]]` of the provider's users"},
	"oidc.profile_claim": {unset: "none", text: "the claim that names a user's `[[limits.profile]]`: the first of its " +
		"values that is one. Users whose claim names none have `oidc.profile`, and without it may not log in"},
	"oidc.session_timeout": {unset: "that of the profile, or of `[limits]`", text: "length of a session"},
	"oidc.login_time": {unset: "`\"10m\"`", text: "how long a login may take. Until then, or until the login ends, " +
		"the device reaches the provider's hosts"},
	"oidc.garden": {unset: "none", text: "names that the provider's pages need, as in `garden.domains`, beside that of " +
		"its authorization endpoint. They open with it, at its port and at 443, for the device that logs in"},

	"click_through.terms": {text: "how people accept `portal.terms`: `\"button\"`, by pressing it; `\"box\"`, by a box " +
		"that they check ([Click-through](../click-through.md))"},
	"click_through.ask": {unset: "nothing", text: "what the form asks, in this order. `\"room\"` and `\"last_name\"` " +
		"are checked against `click_through.rooms`; `\"name\"` and `\"email\"` are not checked"},
	"click_through.optional": {unset: "none", text: "of them, those that may be left empty"},
	"click_through.rooms": {unset: "none", text: "file of rooms: number, last name and date, a guest a line; others may " +
		"not read it. A change is read within a second. A file with mistakes changes nothing: the log and " +
		"`gatewayd status` name them"},
	"click_through.profile":         {unset: ofLimits, text: "name of the `[[limits.profile]]` of its sessions"},
	"click_through.daily_time":      {unset: noLimit, text: "time of a device a day, over all of its sessions"},
	"click_through.daily_data":      {unset: noLimit, text: "bytes of a device a day, both directions together"},
	"click_through.room_daily_time": {unset: noLimit, text: "time of all devices of a room together a day"},
	"click_through.room_daily_data": {unset: noLimit, text: "bytes of all devices of a room together a day"},
	"click_through.day_begins":      {unset: "`\"00:00\"`", text: "when the day begins, in the machine's time zone"},

	"devices.file": {unset: "none", text: "[devices that come in without a login](../devices.md), a MAC address a line, " +
		"with limits and a name; others may not write it. A change is read within a second. A file with mistakes " +
		"changes nothing: the log and `gatewayd status` name them"},
	"devices.radius": {text: "`true`: the RADIUS servers are asked about the MAC address of a device that appears " +
		"(Service-Type Call-Check)"},
	"devices.user_name": {text: "`\"vlan\"`: User-Name is the VLAN or [QinQ " +
		"pair](../relays.md#a-vlan-for-each-subscriber) that the device is in, such as `100:20`; " +
		"its MAC address where there is none"},
	"devices.mac_format": {text: "how User-Name has the MAC address, shown by that of `aabbccddeeff`: small letters as " +
		"hostapd and Cisco, `\"AA:BB:CC:DD:EE:FF\"` as Mikrotik, `\"AA-BB-CC-DD-EE-FF\"` as RFC 3580"},
	"devices.password":      {unset: "the User-Name", text: "User-Password of such requests"},
	"devices.password_file": {text: "file with it, instead; not readable by everyone"},
	"devices.ask_randomised": {text: "`false`: the servers are not asked about addresses that the device made itself, " +
		"as phones do. `devices.file` and `devices.remember` apply to them all the same"},
	"devices.ask_again": {text: "how long an answer about a device holds, yes or no. After it a device that is there is " +
		"asked about again, and a no ends its session"},
	"devices.remember": {unset: "devices are not remembered", text: "how long a device need not log in again after a " +
		"login at the portal"},
	"devices.consent": {text: "`true`: only where the person checks a box on the login page. `false`: always"},

	"pppoe.enabled":  {text: "`true`: clients may log in by [PPP over Ethernet](../pppoe.md)"},
	"pppoe.name":     {text: "AC-Name in offers"},
	"pppoe.services": {unset: "any that a client asks for", text: "Service-Names offered"},
	"pppoe.networks": {unset: "none", text: "IPv4 networks outside the LAN, of which `pppoe.pools`, `pppoe.pool` and " +
		"RADIUS (Framed-IP-Address) may give [clients addresses](../pppoe.md#addresses-outside-the-lan); with `ebpf` and " +
		"`kernel`"},
	"pppoe.pools": {text: "addresses of the LAN for clients without Framed-IP-Address. `dhcp.pools` must " +
		"not contain them"},
	"pppoe.pool": {text: "table of name = list of ranges, as in `pppoe.pools`: pools for clients for " +
		"which RADIUS names one (Framed-Pool)"},
	"pppoe.resolvers": {unset: "`dhcp.dns`, or the gateway", text: "resolvers, two at most"},
	"pppoe.methods": {unset: "all that can be checked", text: "in the order in which clients are asked; the " +
		"users' file can check `\"pap\"` only"},
	"pppoe.mtu": {text: "largest MTU of a client, bytes (RFC 4638). No more is granted than the MTU of " +
		"`lan.interface` less 8"},
	"pppoe.ipv6":             {text: "`true`: PPPoE clients have IPv6 too, and a /64 each of `lan.client_prefixes`"},
	"pppoe.sessions_per_mac": {text: "sessions of one MAC address at once; a further login ends the oldest"},
	"pppoe.sessions":         {text: "sessions at once"},
	"pppoe.sessions_waiting": {unset: "16384", text: "sessions at once that have not logged in yet. A further session " +
		"takes the place of the one that is likeliest dead, but never of a session " +
		"whose password is being checked or waits for the check"},
	"pppoe.delay":         {text: "how long an offer waits, so that the offer of another concentrator is first"},
	"pppoe.echo":          {text: "time between LCP echo requests"},
	"pppoe.echo_failures": {text: "requests without a reply after which a session ends"},

	"ident.enabled": {text: "`true`: [answer RFC 1413 queries](../who-used-an-address.md#ident) in the clients' " +
		"place; needs Linux 6.6"},
	"ident.method": {text: "`\"nat\"`: servers ask at the client's address. `\"masquerade\"`: at the gateway's, " +
		"which clients have outside. By IPv6 they always ask at the client's"},
	"ident.answer":    {text: "what replies say of the user. Whose a token is: `gatewayd ident-token`"},
	"ident.name_of":   {text: "users of whom replies say the name, whatever `ident.answer` is"},
	"ident.token_of":  {text: "users of whom replies have a token"},
	"ident.hidden_of": {text: "users of whom replies say that they are hidden"},
	"ident.rate":      {text: "queries a second of each asking host, and five times as many at once"},

	"radius.primary.address":      {text: "preferred server, UDP port 1812 unless given"},
	"radius.primary.acct_address": {unset: "the next port", text: "address of the primary server for accounting"},
	"radius.primary.secret":       {text: "shared secret"},
	"radius.primary.secret_file":  {text: "file with the secret, instead; not readable by everyone"},
	"radius.secondary.address": {text: "server that is used when the primary does not answer, as " +
		"`radius.primary.address`"},
	"radius.secondary.acct_address": {unset: "the next port", text: "address of the secondary server for accounting"},
	"radius.secondary.secret":       {text: "its shared secret"},
	"radius.secondary.secret_file":  {text: "file with the secret, instead"},
	"radius.method":                 {text: "how passwords of the portal are sent"},
	"radius.accounting":             {text: "whether accounting is sent"},
	"radius.swap_octets": {text: "`false`: Acct-Input-Octets is what the client sent (RFC 2866, 5.3). " +
		"`true`: what it received"},
	"radius.nas_identifier": {text: "NAS-Identifier"},
	"radius.nas_address":    {text: "NAS-IP-Address; without the key it is not sent"},
	"radius.called_station_id": {text: "Called-Station-Id, such as `\"02-00-00-00-00-FF:Guests\"`; without the " +
		"key it is not sent"},
	"radius.nas_port_id": {text: "`\"vlan\"`: NAS-Port-Id, and of clients without PPPoE NAS-Port too, are the client's " +
		"VLAN or [QinQ pair](../relays.md#a-vlan-for-each-subscriber). `\"interface\"`, and without a VLAN: NAS-Port-Id is " +
		"`lan.interface`"},
	"radius.nas_port_type": {text: "NAS-Port-Type of clients at the portal; that of PPPoE clients is " +
		"Ethernet"},
	"radius.timeout": {text: "wait for an answer to the first packet to a server; each further wait is twice as " +
		"long, up to 16 s. " +
		"[A login waits](../gateway-reference.md#how-long-a-login-waits) 8 s for all servers together, or longer " +
		"where one packet to each takes longer"},
	"radius.retries": {text: "retransmissions to each server"},
	"radius.interim": {text: "time between accounting updates, unless the server sets one"},
	"radius.dynamic": {text: "address, one that clients do not reach, at which the servers may end sessions and " +
		"change limits: " +
		"[requests of servers](../gateway-reference.md#requests-of-servers). Their usual port is 3799"},

	"users.file": {text: "[accounts](../gateway-reference.md#users-file), one a line; mode 640 at most, owner root. " +
		"A change is read within a second. " +
		"A file with mistakes changes nothing: the log and `gatewayd status` name them"},

	"limits.session_timeout": {unset: noLimit, text: "length of a session"},
	"limits.idle_timeout": {text: "how long a client may send nothing. The default, which is openNDS's, is for " +
		"logins at the portal (CoovaChilli has none, hostapd 5 minutes); " +
		"PPPoE sessions have no idle timeout unless another value is set"},
	"limits.up_rate":     {unset: noLimit, text: "bits a second that a client sends"},
	"limits.down_rate":   {unset: noLimit, text: "bits a second that a client receives"},
	"limits.up_quota":    {unset: noLimit, text: "bytes that a client sends in a session"},
	"limits.down_quota":  {unset: noLimit, text: "bytes that a client receives in a session"},
	"limits.total_quota": {unset: noLimit, text: "bytes that a client sends and receives in a session, together"},
	"limits.sessions_per_user": {unset: noLimit, text: "sessions of one user at once (RADIUS: Port-Limit). A further " +
		"login is refused, but one with the MAC address of such a session replaces it. " +
		"Upper and lower case are one name. Click-through logins without a room and those by `gatewayd login` " +
		"count too, but are never refused"},
	"limits.connections": {unset: noLimit, text: "connections of a client [at once](../nat.md#connections-of-a-client), " +
		"of all of its addresses. A number, or `\"none\"`: only those of logins that have a limit are counted"},
	"limits.profile.name": {unset: required, text: "a table `[[limits.profile]]` for each profile: limits that a server " +
		"gives by Filter-Id with this name. Limits that it gives itself replace those of the profile, and `[limits]` has " +
		"those that neither has. With profiles a login whose Filter-Id names none is refused"},
	"limits.profile.session_timeout":   {unset: ofLimits, text: "as `limits.session_timeout`"},
	"limits.profile.idle_timeout":      {unset: ofLimits, text: "as `limits.idle_timeout`"},
	"limits.profile.up_rate":           {unset: ofLimits, text: "as `limits.up_rate`"},
	"limits.profile.down_rate":         {unset: ofLimits, text: "as `limits.down_rate`"},
	"limits.profile.up_quota":          {unset: ofLimits, text: "as `limits.up_quota`"},
	"limits.profile.down_quota":        {unset: ofLimits, text: "as `limits.down_quota`"},
	"limits.profile.total_quota":       {unset: ofLimits, text: "as `limits.total_quota`"},
	"limits.profile.sessions_per_user": {unset: ofLimits, text: "as `limits.sessions_per_user`"},
	"limits.profile.connections":       {unset: ofLimits, text: "as `limits.connections`"},

	"datapath.kind": {text: "[data path](../data-paths.md): `\"ebpf\"` unless you compare; `\"kernel\"` is for " +
		"PPPoE clients alone"},
	"datapath.fast":   {text: "`tun`, `nfqueue`: as fast as the mechanism can be, instead of packet by packet"},
	"datapath.device": {text: "`tun`: the device, which gatewayd makes and gives `lan.address`"},
	"datapath.forward": {text: "`ebpf`. `\"auto\"`: packets are redirected to their next hop; while netfilter has " +
		"rules for forwarded packets, or " +
		"[the kernel might decide otherwise](../nat.md#how-packets-are-forwarded), its stack forwards. " +
		"`\"redirect\"`: past netfilter, whatever its rules are, " +
		"but for the first packets of each connection while `flowlog.enabled`. `\"stack\"`: always the stack"},
	"datapath.flow_cache": {text: "`ebpf` with `datapath.forward = \"auto\"`, where netfilter has rules or " +
		"connections are logged. `\"auto\"`: " +
		"[cache flows](../nat.md#flows-that-are-cached) while the rules decide by what is the same for all packets " +
		"of a flow. `\"always\"`: whatever the rules look at. " +
		"`\"never\"`: the kernel's stack forwards every packet"},
	"datapath.shaping": {text: "`ebpf`. `\"auto\"`: packets beyond a client's rate [wait for their " +
		"turn](../data-paths.md#rate-limits) where the interface's queue can hold them. " +
		"Elsewhere, and with `\"never\"`, they are dropped"},
	"datapath.pin_dir": {text: "`ebpf`: where programs and maps outlive the daemon, on a BPF file system (`mount -t " +
		"bpf bpf /sys/fs/bpf`, where systemd has not). " +
		"A change ends sessions with cause NAS-Reboot, and the former folder can be removed"},

	"flowlog.enabled": {text: "`true`: log clients' connections ([Who used an address](../who-used-an-address.md)). " +
		"With `ebpf` flows are cached meanwhile instead of redirected. " +
		"Not with `nfqueue` and `datapath.fast`"},
	"flowlog.folder": {unset: "`flows` in `state_dir`", text: "where its files are"},
	"flowlog.keep":   {text: "how long files are kept after their last line"},
	"flowlog.most":   {unset: `"10GB"`, text: "bytes of all files, `\"100MB\"` at least; the oldest go first"},
	"flowlog.ipfix":  {text: "IPFIX collector for connections that have ended, by UDP, port 4739 unless given"},

	"metrics.listen": {unset: "no metrics", text: "address, one that clients do not reach, and port for " +
		"[Prometheus](gatewayd-counters.md)"},

	"admin.listen": {unset: "no admin page", text: "where the [admin page](../admin.md) and its API are: an address and " +
		"port, or `\"unix:/path/of/a/socket\"`. Clients reach it only at an address of the LAN"},
	"admin.accounts": {unset: required, text: "file of those who may log in, one a line, which `gatewayd admin set " +
		"NAME` makes; mode 640 at most, owner root. A change is read at once"},
	"admin.tls_cert": {unset: "plain HTTP, at a loopback address or a socket alone", text: "PEM file of the " +
		"certificate chain. It is read again within a minute of a change. With an expired one nobody gets in"},
	"admin.tls_key": {unset: "none", text: "PEM file of its key"},
	"admin.trusted_proxies": {unset: "none", text: "proxies whose `X-Forwarded-For` and `user_header` are believed; " +
		"all that use the Unix socket are"},
	"admin.user_header": {unset: "people log in at the page", text: "header in which a trusted proxy names who has " +
		"logged in there. The name needs an account"},
	"admin.idle_timeout":    {text: "time without a request after which a browser must log in again"},
	"admin.session_timeout": {text: "time after a login after which a browser must log in again"},

	"store.kind": {text: "`\"file\"`: sessions are kept in `state_dir`. `\"redis\"`: there, with copies in " +
		"[a store that several gateways share](../cluster.md)"},
	"store.addresses": {unset: required + " with `\"redis\"`", text: "the server, address or name and port; with " +
		"`store.sentinel_master` the Sentinels"},
	"store.sentinel_master": {unset: "no Sentinels", text: "what Sentinels call the server"},
	"store.user":            {unset: "the server's default one", text: "user of the server's ACL"},
	"store.password_file":   {unset: "none", text: "file with the password; not readable by everyone"},
	"store.sentinel_user": {unset: "the Sentinels' default one", text: "user of the Sentinels' ACL, which is not the " +
		"server's"},
	"store.sentinel_password_file": {unset: "none: they ask for no password", text: "file with the Sentinels' password; " +
		"not readable by everyone"},
	"store.key_file": {unset: "nothing is signed", text: "file with a secret that all gateways of the store have, of 32 " +
		"characters or more; not readable by everyone. With it they sign what they write there, and use nothing that " +
		"is not signed by it"},
	"store.ca_file": {unset: "no TLS", text: "authorities of the certificates of servers and Sentinels, PEM; with it " +
		"connections are encrypted"},
	"store.name": {unset: required + " with `\"redis\"`", text: "what this gateway is called in the store; each has " +
		"its own"},
	"store.prefix": {text: "begins all keys in the store"},
	"store.roaming": {text: "whether a device that has a session at another gateway comes in here without a login, and " +
		"leaves there: `\"mac\"` if it has the same MAC address, `\"address\"` if it has the same IP address too, " +
		"`\"off\"` never. Devices behind `lan.repeaters` and on PPPoE never do. Of several networks, those of the same " +
		"name belong together"},

	"pair.site": {unset: "this gateway is alone", text: "what [two gateways on one LAN](../two-gateways.md) are called " +
		"together in the store: the same on both. One serves, and the other takes over when it fails. `lan.address` is of " +
		"the one that serves: no interface needs to have it before. Needs `store.kind = \"redis\"`"},
	"pair.by": {text: "who says which one serves and moves the addresses: `\"keepalived\"` does, and tells gatewayd " +
		"(`gatewayd cluster keepalived` prints its configuration); or gatewayd, by a lease in the store"},
	"pair.accounting": {text: "what RADIUS servers are told when the other gateway takes over: `\"continue\"`: an " +
		"interim update, and the session keeps its ID; `\"restart\"`: one Stop and one Start for each session"},
	"pair.wan_address": {unset: "none moves", text: "address at the WAN's interface, with its network's length, that is " +
		"of the gateway that serves: routers there send clients' packets to it, and NAT may use it"},
	"pair.lease_time": {text: "with `\"store\"`: how long the addresses stay with a gateway that is gone. It is " +
		"renewed three times meanwhile"},
	"pair.counts": {text: "how often counters go to the store. What a client transfers after the last time is not " +
		"counted if the gateway is lost"},
}

const (
	noLimit  = "no limit"
	ofLimits = "that of `[limits]`"
)
