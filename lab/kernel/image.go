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
	"strings"
)

// ErrForm is wrapped when a file is not a kernel of this machine's kind.
var ErrForm = errors.New("not a kernel for x86-64")

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

	firstWithPayload = 0x0208 // header version
	kernel64         = 1      // of xloadflags
)

// maxImage bounds what is read of a file that is said to be a kernel.
const maxImage = 512 << 20

// releaseOf reads the release from a bzImage's header, or from an ELF file's banner.
func releaseOf(path string) (string, error) {
	image, err := readImage(path)
	if err != nil {
		return "", err
	}
	var text []byte
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		_, text, _ = bytes.Cut(image, []byte("Linux version "))
	} else {
		if err := checkHeader(image); err != nil {
			return "", fmt.Errorf("kernel %s: %w", path, err)
		}
		at := int(binary.LittleEndian.Uint16(image[versionText:])) + 0x200
		text = image[min(at, len(image)):]
	}
	release, _, found := bytes.Cut(text[:min(len(text), 256)], []byte(" "))
	if !found {
		return "", fmt.Errorf("kernel %s: its version is not in it: %w", path, ErrForm)
	}
	return string(release), nil
}

func readImage(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	defer f.Close()
	image, err := io.ReadAll(io.LimitReader(f, maxImage))
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	return image, nil
}

// checkHeader reports whether an image is a bzImage for x86-64.
func checkHeader(image []byte) error {
	switch {
	case len(image) < headerEnd || string(image[headerMagic:headerMagic+4]) != "HdrS":
		return fmt.Errorf("it is neither a bzImage nor an ELF file: %w", ErrForm)
	case binary.LittleEndian.Uint16(image[headerVersion:]) < firstWithPayload:
		return fmt.Errorf("its boot protocol is of Linux 2.6.25 or older: %w", ErrForm)
	case binary.LittleEndian.Uint16(image[loadFlags:])&kernel64 == 0:
		return fmt.Errorf("it is for 32 bits: %w", ErrForm)
	}
	return nil
}

// Bootable writes the image that QEMU boots fastest into a file of the folder, and returns its path: the ELF file
// inside a bzImage where that can be entered directly (PVH) and the program that decompresses it is here, otherwise
// the kernel's own file.
func (k Kernel) Bootable(folder string) (string, error) {
	image, err := readImage(k.Image)
	if err != nil {
		return "", err
	}
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		if !enterable(image) {
			return "", fmt.Errorf("kernel %s: an ELF file without an entry for PVH (CONFIG_PVH): give the bzImage (vmlinuz) instead: %w", k.Image, ErrForm)
		}
		return k.Image, nil
	}
	if err := checkHeader(image); err != nil {
		return "", fmt.Errorf("kernel %s: %w", k.Image, err)
	}
	inner, err := payload(image)
	if err != nil || !enterable(inner) {
		return k.Image, nil // slower by seconds, and as good
	}
	f, err := os.CreateTemp(folder, "vmlinux-")
	if err != nil {
		return "", fmt.Errorf("unpacking the kernel: %w", err)
	}
	_, err = f.Write(inner)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("unpacking the kernel: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
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
		return nil, fmt.Errorf("its header names a payload beyond its end: %w", ErrForm)
	}
	packed := image[start:end]
	for _, d := range decompressors {
		if bytes.HasPrefix(packed, []byte(d.magic)) {
			return decompress(packed, d.command)
		}
	}
	return nil, fmt.Errorf("compressed in an unknown way: %w", ErrForm)
}

func decompress(packed []byte, command []string) ([]byte, error) {
	if command == nil {
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, err
		}
		r.Multistream(false)
		return io.ReadAll(io.LimitReader(r, maxImage))
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = bytes.NewReader(packed[:len(packed)-4])
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("decompressing the kernel with %s: %w", strings.Join(command, " "), err)
	}
	return out, nil
}

// pvhEntry is the type of the note "Xen" that says where a PVH loader enters (XEN_ELFNOTE_PHYS32_ENTRY).
const pvhEntry = 18

// enterable reports whether QEMU can enter an ELF file directly.
func enterable(image []byte) bool {
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
		nameSize, size, typ := uint64(binary.LittleEndian.Uint32(notes)), uint64(binary.LittleEndian.Uint32(notes[4:])), binary.LittleEndian.Uint32(notes[8:])
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
