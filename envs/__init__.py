"""The environments that come with ragen_verl: each is one small module or folder that uses numpy and gymnasium."""
