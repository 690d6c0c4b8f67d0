// The files of kernels: bzImage and ELF.

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

// Errors about the files of a kernel.
var (
	ErrForm    = errors.New("not a kernel for x86-64")
	ErrDamaged = errors.New(
		"a file is damaged or missing: gateweigh kernel fetch gets a Debian kernel anew; any other, put it there again")
)

// The header of a bzImage (kernel, Documentation/arch/x86/boot.rst): places of its fields in the file.
const (
	setupSectors  = 0x1f1 // number of sectors of 512 bytes after the first one that come before the kernel itself
	headerMagic   = 0x202 // the text "HdrS"
	headerVersion = 0x206
	versionText   = 0x20e // the place of the version's text, less 0x200
	loadFlags     = 0x236 // xloadflags
	payloadStart  = 0x248 // where the compressed kernel begins, counted from the end of the setup sectors
	payloadLength = 0x24c
	headerEnd     = 0x250

	armMagic = 56 // place of the text "ARM\x64" in an arm64 Image (kernel, Documentation/arch/arm64/booting.rst)

	firstWithPayload = 0x0208 // first header version that has payloadStart
	kernel64         = 1      // bit of xloadflags: the kernel can be entered in 64-bit mode
)

// maxImage is the largest number of bytes that are read of a kernel's file. maxHeader is the number of bytes of a
// bzImage in which the text of its version must be: the field with the text's place has 16 bits.
const (
	maxImage  = 512 << 20
	maxHeader = 0x200 + 1<<16 + 256
)

// releaseOf reads the release of a kernel from its file: from the header of a bzImage, or from the text "Linux version"
// in an ELF file. It is an error if the file is no kernel that a guest can run.
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

// oldestRelease is the first release with all file systems that a guest mounts.
var oldestRelease = []int{4, 5}

// versionBanner returns the text of a kernel's version, which begins with its release. The text ends somewhere in what
// follows. It may be empty.
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

// readImage reads a file, or its first most bytes if it is longer.
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

// checkHeader returns an error if an image is no bzImage for x86-64.
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

// Bootable returns the image that QEMU boots fastest. That is the ELF file inside a bzImage, if QEMU can enter it
// directly (PVH) and the program that decompresses it is installed. Otherwise it is the content of the kernel's own
// file.
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

// decompressors lists the formats in which kernels are compressed, by the bytes with which they begin. After the
// compressed data there are four bytes with its length, except for gzip.
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

// payload decompresses the ELF file inside a bzImage.
func payload(image []byte) ([]byte, error) {
	sectors := max(int(image[setupSectors]), 1)
	if image[setupSectors] == 0 {
		sectors = 4
	}
	start := uint64(sectors+1)*512 + uint64(binary.LittleEndian.Uint32(image[payloadStart:]))
	end := start + uint64(binary.LittleEndian.Uint32(image[payloadLength:]))
	if start+4 > end || end > uint64(len(image)) {
		return nil, damaged(errors.New("it ends before what its header names"))
	}
	packed := image[start:end]
	for _, d := range decompressors {
		if bytes.HasPrefix(packed, []byte(d.magic)) {
			return decompress(packed, d.command)
		}
	}
	return nil, errors.New("compressed in an unknown way")
}

// decompress decompresses data by a command of decompressors; an empty command means gzip. The error wraps ErrDamaged
// if the data is damaged, and does not if the program is missing.
func decompress(packed []byte, command []string) ([]byte, error) {
	if command == nil {
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, damaged(err)
		}
		r.Multistream(false)
		out, err := io.ReadAll(io.LimitReader(r, maxImage))
		return out, damaged(err)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = bytes.NewReader(packed[:len(packed)-4])
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return nil, damaged(fmt.Errorf("%s: %s", command[0], bytes.TrimSpace(failed.Stderr)))
	}
	return out, err
}

// damaged returns err with ErrDamaged around it; nil for nil.
func damaged(err error) error {
	if err != nil {
		err = fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	return err
}

// pvhEntry is the type of the ELF note of "Xen" that says where a loader enters the kernel by PVH
// (XEN_ELFNOTE_PHYS32_ENTRY).
const pvhEntry = 18

// hasQEMUEntry reports whether QEMU can enter an ELF file directly (PVH).
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

// hasNote reports whether a segment of notes of an ELF file has a note with this name and type. A note is the sizes of
// its name and its content, its type, the name, and the content. The last two are padded to four bytes.
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
