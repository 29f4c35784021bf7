package toolrouter

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/cairnrun/cairn/pkg/tool"
)

// maxFileBytes is the largest file that file.read returns and file.write takes, in bytes.
const maxFileBytes = 4 << 20

// files are the tools file.read, file.write and file.search over one folder. os.Root keeps every path inside it, also
// through symbolic links.
type files struct{ root *os.Root }

func openFiles(dir string) (*files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("folder for the file tools: %w; create it or choose another with --root", err)
	}
	return &files{root: root}, nil
}

func (f *files) close() { _ = f.root.Close() }

func (f *files) tools() []*tool.Tool {
	return []*tool.Tool{
		tool.New("file.read", f.read, tool.Version("1.0.0"), tool.Idempotent(),
			tool.Description("Reads one file. Text comes as it is, anything else in base64.")),
		tool.New("file.write", f.write, tool.Version("1.0.0"), tool.Idempotent(), tool.Permission("file.write"), tool.Risk("medium"),
			tool.Description("Writes one file as a whole, and the folders above it.")),
		tool.New("file.search", f.search, tool.Version("1.0.0"), tool.Idempotent(),
			tool.Description("Finds files by name and, where text is given, the lines that hold it.")),
	}
}

type readInput struct {
	Path string `json:"path" jsonschema:"Relative to the folder, with forward slashes"`
}

type readOutput struct {
	Path     string `json:"path"`
	Content  string `json:"content"`
	Encoding string `json:"encoding" enum:"utf-8,base64"`
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
}

func (f *files) read(_ context.Context, in readInput) (readOutput, error) {
	data, err := f.content(in.Path)
	if err != nil {
		return readOutput{}, err
	}
	out := readOutput{Path: path.Clean(in.Path), Content: string(data), Encoding: "utf-8", Size: int64(len(data)), SHA256: digest(data)}
	if !utf8.Valid(data) {
		out.Content, out.Encoding = base64.StdEncoding.EncodeToString(data), "base64"
	}
	return out, nil
}

// content refuses what is not a regular file before it is opened: opening a pipe would wait for a writer.
func (f *files) content(name string) ([]byte, error) {
	local, err := localPath(name)
	if err != nil {
		return nil, err
	}
	info, err := f.root.Stat(local)
	if err != nil {
		return nil, fileError(name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, tool.Errorf(tool.CodeInvalidArguments, "%s is not a file", name)
	}
	file, err := f.root.Open(local)
	if err != nil {
		return nil, fileError(name, err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, fileError(name, err)
	}
	if len(data) > maxFileBytes {
		return nil, tool.Errorf(tool.CodeOutputTooLarge, "%s has %d bytes, at most %d are read", name, info.Size(), maxFileBytes)
	}
	return data, nil
}

type writeInput struct {
	Path     string `json:"path" jsonschema:"Relative to the folder, with forward slashes"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty" enum:"utf-8,base64"`
	// Mode: overwrite where empty.
	Mode string `json:"mode,omitempty" enum:"overwrite,create" jsonschema:"create refuses a file that exists with other content"`
}

type writeOutput struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// write replaces the file by a rename, so that nobody reads half of it.
func (f *files) write(_ context.Context, in writeInput) (writeOutput, error) {
	local, err := localPath(in.Path)
	if err != nil {
		return writeOutput{}, err
	}
	data := []byte(in.Content)
	if in.Encoding == "base64" {
		if data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return writeOutput{}, tool.Errorf(tool.CodeInvalidArguments, "content is not base64: %w", err)
		}
	}
	if len(data) > maxFileBytes {
		return writeOutput{}, tool.Errorf(tool.CodeInvalidArguments, "the content has %d bytes, at most %d are written", len(data), maxFileBytes)
	}
	out := writeOutput{Path: path.Clean(in.Path), Size: int64(len(data)), SHA256: digest(data)}
	info, err := f.root.Stat(local)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return writeOutput{}, tool.Errorf(tool.CodeInvalidArguments, "%s is not a file", in.Path)
	case err == nil && in.Mode == "create":
		there, err := f.content(in.Path)
		if err == nil && digest(there) == out.SHA256 {
			// The same call came a second time.
			return out, nil
		}
		return writeOutput{}, tool.Errorf("already_exists", "%s exists with other content", in.Path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return writeOutput{}, fileError(in.Path, err)
	}
	if err := f.replace(local, data); err != nil {
		return writeOutput{}, fileError(in.Path, err)
	}
	return out, nil
}

func (f *files) replace(local string, data []byte) error {
	if dir := filepath.Dir(local); dir != "." {
		if err := f.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	temp := local + "." + rand.Text() + ".tmp"
	file, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = f.root.Rename(temp, local)
	}
	if err != nil {
		_ = f.root.Remove(temp)
	}
	return err
}

func localPath(name string) (string, error) {
	local := filepath.FromSlash(name)
	if name == "" || strings.ContainsRune(name, 0) {
		return "", tool.Errorf(tool.CodeInvalidArguments, "the path is empty or holds a zero byte")
	}
	if !filepath.IsLocal(local) {
		return "", tool.Errorf(tool.CodeNotPermitted, "%s leads out of the folder", name)
	}
	return local, nil
}

func fileError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tool.Errorf(tool.CodeResourceMissing, "%s does not exist", name)
	// The standard library does not export this error.
	case errors.Is(err, fs.ErrPermission), strings.Contains(err.Error(), "path escapes from parent"):
		return tool.Errorf(tool.CodeNotPermitted, "%s is out of reach", name)
	}
	return tool.Errorf(tool.CodeInternal, "%s: %w", name, err)
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
