// Package blobtest starts a server of S3 for tests.
package blobtest

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

const (
	accessKey = "bailey"
	secretKey = "bailey-test-secret"
	bucket    = "codebases"
)

// Server starts a server that keeps its objects in a temporary directory, makes a
// bucket, and returns the address of that. It is the caller's environment that has
// the credentials then.
func Server(t *testing.T) string {
	t.Helper()
	testenv.Requires(t, testenv.Program("versitygw"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	dir := t.TempDir()
	server := exec.Command("versitygw", "--access", accessKey, "--secret", secretKey, "--port", address, "posix", dir)
	server.Dir = dir
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	awaitBanner(t, out, address)
	t.Setenv("AWS_ACCESS_KEY_ID", accessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
	t.Setenv("AWS_ENDPOINT_URL", "http://"+address)
	t.Setenv("AWS_REGION", "us-east-1")
	makeBucket(t, address)
	return "s3://" + bucket + "/test"
}

// awaitBanner waits until the server says where it listens.
func awaitBanner(t *testing.T, out io.Reader, address string) {
	t.Helper()
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, "http://"+address) {
			break
		}
		if err != nil {
			t.Fatalf("the server of S3 ended: %v", err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
}

// makeBucket tries again by itself where nobody listens yet.
func makeBucket(t *testing.T, address string) {
	t.Helper()
	client, err := minio.New(address, &minio.Options{Creds: credentials.NewStaticV4(accessKey, secretKey, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.MakeBucket(context.Background(), bucket, minio.MakeBucketOptions{Region: "us-east-1"}); err != nil {
		t.Fatal(err)
	}
}
