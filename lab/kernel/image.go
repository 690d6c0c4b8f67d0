package kernel

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Errors that a kernel's files can have.
var (
	ErrForm    = errors.New("not a kernel for x86-64")
	ErrDamaged = errors.New(
		"a file is damaged or missing: gateweigh kernel fetch gets a Debian kernel anew; any other, put it there again")
)

// The header of a bzImage (kernel, Documentation/arch/x86/boot.rst): places and sizes of its fields.
const (
	setupSectors  = 0x1f1 // of 512 bytes, after the first
	headerMagic   = 0x202 // "HdrS"
	headerVersion = 0x206
	versionText   = 0x20e // place of the version's text, less 0x200
	loadFlags     = 0x236 // xloadflags
	payloadStart  = 0x248 // from the end of the setup sectors
	payloadLength = 0x24c
	headerEnd     = 0x250

	armMagic = 56 // of an arm64 Image (kernel, Documentation/arch/arm64/booting.rst)

	firstWithPayload = 0x0208 // header version
	kernel64         = 1      // of xloadflags
)

// maxImage bounds what is read of a file that is said to be a kernel, and maxHeader what of a bzImage names its
// release: the place of that text has 16 bits.
const (
	maxImage  = 512 << 20
	maxHeader = 0x200 + 1<<16 + 256
)

// releaseOf reads the release from a bzImage's header, or from an ELF file's banner.
func releaseOf(path string) (string, error) {
	image, err := readImage(path, maxHeader)
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		image, err = readImage(path, maxImage)
	}
	if err != nil {
		return "", err
	}
	text, err := versionBanner(image)
	if err != nil {
		return "", fmt.Errorf("kernel %s: %w", path, err)
	}
	release, _, found := bytes.Cut(text[:min(len(text), 256)], []byte(" "))
	if !found {
		return "", fmt.Errorf("kernel %s: its version is not in it: %w", path, ErrForm)
	}
	if v := numbers(string(release)); slices.Compare(v, oldestRelease) < 0 {
		return "", fmt.Errorf("kernel %s is Linux %s, and a guest's files need %d.%d or newer (cgroup2): %w", path, release,
			oldestRelease[0], oldestRelease[1], ErrForm)
	}
	return string(release), nil
}

// oldestRelease is the release that has all file systems of a guest.
var oldestRelease = []int{4, 5}

// versionBanner begins with the release.
func versionBanner(image []byte) ([]byte, error) {
	if !bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		if err := checkHeader(image); err != nil {
			return nil, err
		}
		index := int(binary.LittleEndian.Uint16(image[versionText:])) + 0x200
		return image[min(index, len(image)):], nil
	}
	if f, err := elf.NewFile(bytes.NewReader(image)); err == nil && f.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("it is for %s: %w", strings.TrimPrefix(f.Machine.String(), "EM_"), ErrForm)
	}
	_, text, _ := bytes.Cut(image, []byte("Linux version "))
	return text, nil
}

// readImage reads a file up to a number of bytes.
func readImage(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // opening others may block
		err = fmt.Errorf("%s is not a file: %w", path, ErrForm)
	}
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	defer f.Close()
	image, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	return image, nil
}

// checkHeader reports whether an image is a bzImage for x86-64.
func checkHeader(image []byte) error {
	switch {
	case len(image) >= 64 && string(image[armMagic:armMagic+4]) == "ARM\x64":
		return fmt.Errorf("it is for arm64: %w", ErrForm)
	case len(image) < headerEnd || string(image[headerMagic:headerMagic+4]) != "HdrS":
		return fmt.Errorf("it is neither a bzImage nor an ELF file: %w", ErrForm)
	case binary.LittleEndian.Uint16(image[headerVersion:]) < firstWithPayload:
		return fmt.Errorf("its boot protocol is of Linux 2.6.25 or older: %w", ErrForm)
	case binary.LittleEndian.Uint16(image[loadFlags:])&kernel64 == 0:
		return fmt.Errorf("it is for 32 bits: %w", ErrForm)
	}
	return nil
}

// Bootable is the image that QEMU boots fastest: the ELF file inside a bzImage where that can be entered directly (PVH)
// and the program that decompresses it is here, otherwise the kernel's own file.
func (k Kernel) Bootable() ([]byte, error) {
	image, err := readImage(k.Image, maxImage)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		if !hasQEMUEntry(image) {
			return nil, fmt.Errorf(
				"kernel %s: an ELF file without an entry for PVH (CONFIG_PVH): give the bzImage (vmlinuz) instead: %w", k.Image,
				ErrForm)
		}
		return image, nil
	}
	if err := checkHeader(image); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", k.Image, err)
	}
	inner, err := payload(image)
	switch {
	case errors.Is(err, ErrDamaged):
		return nil, fmt.Errorf("kernel %s: %w", k.Image, err)
	case err != nil || !hasQEMUEntry(inner):
		return image, nil // slower by seconds, and as good
	}
	return inner, nil
}

// decompressors are what kernels are compressed with. All but gzip's are followed by four bytes of length.
var decompressors = []struct {
	magic   string
	command []string // empty: gzip
}{
	{"\x1f\x8b\x08", nil},
	{"\xfd7zXZ\x00", []string{"xz", "-dc"}},
	{"\x28\xb5\x2f\xfd", []string{"zstd", "-dcq"}},
	{"\x02\x21\x4c\x18", []string{"lz4", "-dcq"}},
	{"BZh", []string{"bzip2", "-dc"}},
	{"\x5d\x00\x00", []string{"xz", "-dc", "--format=lzma"}},
}

// payload is the ELF file inside a bzImage.
func payload(image []byte) ([]byte, error) {
	sectors := max(int(image[setupSectors]), 1)
	if image[setupSectors] == 0 {
		sectors = 4
	}
	start := uint64(sectors+1)*512 + uint64(binary.LittleEndian.Uint32(image[payloadStart:]))
	end := start + uint64(binary.LittleEndian.Uint32(image[payloadLength:]))
	if start+4 > end || end > uint64(len(image)) {
		return nil, fetchDamaged(errors.New("it ends before what its header names"))
	}
	packed := image[start:end]
	for _, d := range decompressors {
		if bytes.HasPrefix(packed, []byte(d.magic)) {
			return decompress(packed, d.command)
		}
	}
	return nil, errors.New("compressed in an unknown way")
}

// decompress unpacks with a program, or by itself. Of damaged data it says so; that the program is missing is not.
func decompress(packed []byte, command []string) ([]byte, error) {
	if command == nil {
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fetchDamaged(err)
		}
		r.Multistream(false)
		out, err := io.ReadAll(io.LimitReader(r, maxImage))
		return out, fetchDamaged(err)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = bytes.NewReader(packed[:len(packed)-4])
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return nil, fetchDamaged(fmt.Errorf("%s: %s", command[0], bytes.TrimSpace(failed.Stderr)))
	}
	return out, err
}

func fetchDamaged(err error) error {
	if err != nil {
		err = fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	return err
}

// pvhEntry is the type of the note "Xen" that says where a PVH loader enters (XEN_ELFNOTE_PHYS32_ENTRY).
const pvhEntry = 18

// hasQEMUEntry reports whether QEMU can enter an ELF file directly.
func hasQEMUEntry(image []byte) bool {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil || f.Machine != elf.EM_X86_64 {
		return false
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(p.Open())
		if err == nil && hasNote(notes, "Xen", pvhEntry) {
			return true
		}
	}
	return false
}

// hasNote looks for a note in an ELF file's segment of notes: sizes of name and text, type, both padded to four bytes.
func hasNote(notes []byte, name string, kind uint32) bool {
	for len(notes) >= 12 {
		nameSize, size, typ := uint64(binary.LittleEndian.Uint32(notes)), uint64(binary.LittleEndian.Uint32(notes[4:])),
			binary.LittleEndian.Uint32(notes[8:])
		next := 12 + (nameSize+3)&^3 + (size+3)&^3
		if next > uint64(len(notes)) {
			return false
		}
		if typ == kind && strings.TrimRight(string(notes[12:12+nameSize]), "\x00") == name {
			return true
		}
		notes = notes[next:]
	}
	return false
}
