package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// bucket keeps each object in one of S3's.
type bucket struct {
	client *minio.Client
	name   string
	prefix string
}

// partSize is how much of an object is held in memory until it is sent. S3 takes
// 10,000 parts.
const partSize = 16 << 20

// OpenS3 keeps objects in a bucket: s3://BUCKET/PREFIX, with ?endpoint=URL for a
// server that is not Amazon's, and ?region=NAME. Otherwise the variables that every
// tool for S3 knows hold: AWS_ENDPOINT_URL, AWS_REGION, and the credentials in
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in the user's files.
func OpenS3(u *url.URL) (Store, error) {
	if u.Host == "" || u.User != nil {
		return nil, errors.New("a bucket is named as s3://BUCKET/PREFIX; credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	endpoint, secure, err := findEndpoint(u.Query().Get("endpoint"))
	if err != nil {
		return nil, err
	}
	region := u.Query().Get("region")
	if region == "" {
		region = os.Getenv("AWS_REGION")
	}
	client, err := minio.New(endpoint, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
		Secure: secure, Region: region,
	})
	if err != nil {
		return nil, fmt.Errorf("s3://%s: %w", u.Host, err)
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &bucket{client, u.Host, prefix}, nil
}

func findEndpoint(address string) (host string, secure bool, err error) {
	if address == "" {
		address = os.Getenv("AWS_ENDPOINT_URL")
	}
	if address == "" {
		return "s3.amazonaws.com", true, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", false, fmt.Errorf("%s: an endpoint is an address such as https://s3.example.com", address)
	}
	return u.Host, u.Scheme == "https", nil
}

// fail names the object, and says in one way that it does not exist.
func (b *bucket) fail(name string, err error) error {
	if err == nil {
		return nil
	}
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound && minio.ToErrorResponse(err).Code != "NoSuchBucket" {
		return ErrNotFound
	}
	return fmt.Errorf("s3://%s/%s%s: %w", b.name, b.prefix, name, err)
}

func (b *bucket) Put(ctx context.Context, name string, content io.Reader) error {
	if err := checkName(name); err != nil {
		return err
	}
	_, err := b.client.PutObject(ctx, b.name, b.prefix+name, content, -1, minio.PutObjectOptions{PartSize: partSize})
	return b.fail(name, err)
}

func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	o, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.fail(name, err)
	}
	if _, err := o.Stat(); err != nil { // nothing was asked yet
		_ = o.Close()
		return nil, b.fail(name, err)
	}
	return o, nil
}

func (b *bucket) Has(ctx context.Context, name string) (bool, error) {
	if err := checkName(name); err != nil {
		return false, err
	}
	_, err := b.client.StatObject(ctx, b.name, b.prefix+name, minio.StatObjectOptions{})
	err = b.fail(name, err)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (b *bucket) Remove(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	err := b.fail(name, b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{}))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (b *bucket) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, b.fail(prefix, o.Err)
		}
		names = append(names, strings.TrimPrefix(o.Key, b.prefix))
	}
	slices.Sort(names)
	return names, nil
}
