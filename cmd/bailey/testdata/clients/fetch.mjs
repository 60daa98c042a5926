// Fetches URLs with the interface that is named, and prints the bodies. Every
// URL is tried; the status tells whether one could not be had.
import http from 'node:http';
import https from 'node:https';

async function withFetch(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer.text();
}

function withHttp(url) {
  return new Promise((resolve, reject) => {
    const get = url.startsWith('https:') ? https.get : http.get;
    get(url, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (part) => { text += part; });
      answer.on('end', () => answer.statusCode === 200 ? resolve(text) : reject(new Error(`${answer.statusCode} ${text}`)));
    }).on('error', reject);
  });
}

const [how, ...urls] = process.argv.slice(2);
for (const url of urls) {
  try {
    console.log(url + ':', await (how === 'fetch' ? withFetch(url) : withHttp(url)));
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
  }
}
