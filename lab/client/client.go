// Package client simulates the clients of a gateway. It runs in the agent of
// the client host. All kinds of client offer the same verbs: create, lease,
// login, status, logout, release.
package client

// Admission kinds: what a client must do before the router forwards its traffic.
const (
	AdmitNone    = ""        // nothing: traffic is forwarded at once
	AdmitOpenNDS = "opennds" // openNDS click-through: redirect, splash, continue
	AdmitForm    = "form"    // the form of a login page, with an RFC 8908 API beside it
	AdmitUAM     = "uam"     // CoovaChilli's universal access method with a CHAP response
	AdmitCommand = "command" // the user's own commands, run in the client's namespace
)

// Admission says how clients of a DUT get and lose access. It is sent to the
// client host's agent as JSON.
type Admission struct {
	Kind string `json:"kind"`
	// Portal is the address of the portal: "host:port".
	Portal string `json:"portal,omitempty"`
	// Probe is the URL a client asks for first, as a phone's captive-portal check would.
	Probe string `json:"probe,omitempty"`
	// API is the URL of the captive portal API (RFC 8908), for AdmitForm.
	API string `json:"api,omitempty"`
	// User and Password are used by AdmitForm and AdmitUAM; "%d" in User becomes the client's number.
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	// Secret is the UAM secret shared by portal and gateway (CoovaChilli uamsecret).
	Secret string `json:"secret,omitempty"`
	// Login, Status and Logout are argument vectors for AdmitCommand.
	Login  []string `json:"login,omitempty"`
	Status []string `json:"status,omitempty"`
	Logout []string `json:"logout,omitempty"`
	// Parallel is how many log-ins at once suit the portal; zero: it does not say.
	Parallel int `json:"parallel,omitempty"`
}
