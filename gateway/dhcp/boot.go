package dhcp

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Boot is what clients of a class load from a server before they have an operating system: PXE and iPXE by TFTP, UEFI
// and iPXE by HTTP. A client gets the first one that its classes fit.
type Boot struct {
	// VendorClass begins the client's vendor class (option 60; RFC 4578, 3.1), such as "PXEClient:Arch:00007" for x86-64
	// UEFI; empty: any, also none. The numbers are those of IANA's processor architecture types: RFC 4578, 2.1, has 7 and
	// 9 the other way round, and few machines follow it there.
	VendorClass string
	// UserClass is a user class of the client (option 77), such as "iPXE"; empty: any, also none.
	UserClass string
	// Server is the server that has File (siaddr and option 66); the zero Addr: File is a URL, or has no need of one.
	Server netip.Addr
	File   string // file (field file and option 67): a path or a URL, at most 255 bytes
}

// Codes of the options for booting. A client of UEFI's HTTP boot takes no offer without its vendor class (UEFI 2.10,
// 24.7.3.1). One of PXE is not told a vendor class: it would look for a menu in option 43.
var (
	codeVendorClass = dhcpv4.OptionClassIdentifier.Code()
	codeBootServer  = dhcpv4.OptionTFTPServerName.Code()
	codeBootFile    = dhcpv4.OptionBootfileName.Code()
	codeMachine     = dhcpv4.OptionClientMachineIdentifier.Code()
)

const (
	httpClient   = "HTTPClient"
	maxFileField = atCookie - atFile - 1 // bytes, with a zero byte at the end
)

// fits reports whether the boot is for a client with these classes.
func (b Boot) fits(rq *request) bool {
	return strings.HasPrefix(rq.vendorClass, b.VendorClass) &&
		(b.UserClass == "" || slices.Contains(rq.userClasses, b.UserClass))
}

// bootFor returns what a client loads; nil: nothing.
func bootFor(all []Boot, rq *request) *Boot {
	if i := slices.IndexFunc(all, func(b Boot) bool { return b.fits(rq) }); i >= 0 {
		return &all[i]
	}
	return nil
}

// userClasses returns the classes of option 77: one or several with a byte of length before each (RFC 3004, 4), or
// text without one, as iPXE and some others send it. Text that could be either is both.
func userClasses(data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	all := []string{string(data)}
	var listed []string
	for rest := data; len(rest) > 0; {
		n := int(rest[0])
		if n == 0 || n >= len(rest) {
			return all
		}
		listed, rest = append(listed, string(rest[1:1+n])), rest[1+n:]
	}
	return append(all, listed...)
}

// putFields writes the server and the file into a reply's fields.
func (b *Boot) putFields(message []byte) {
	if b.Server.IsValid() {
		copy(message[atSiaddr:], b.Server.AsSlice())
	}
	if len(b.File) <= maxFileField {
		copy(message[atFile:], b.File)
	}
}

// putOptions adds the options to those of a reply, and returns which of them are sent unasked.
func (b *Boot) putOptions(values map[byte][]byte, rq *request) (always []byte) {
	delete(values, codeBootServer)
	if b.Server.IsValid() {
		values[codeBootServer] = []byte(b.Server.String())
	}
	values[codeBootFile] = []byte(b.File)
	if strings.HasPrefix(rq.vendorClass, httpClient) {
		values[codeVendorClass] = []byte(httpClient)
		always = append(always, codeVendorClass)
	}
	if len(b.File) > maxFileField {
		always = append(always, codeBootFile)
	}
	if len(rq.machine) > 0 { // servers send it back (RFC 4578, 2.3)
		values[codeMachine] = rq.machine
		always = append(always, codeMachine)
	}
	return always
}
